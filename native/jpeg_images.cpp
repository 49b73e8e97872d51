// The part of images.h that needs libjpeg-turbo.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "crew.h"
#include "cutting.h"
#include "exif.h"
#include "jpeg.h"
#include "images.h"

namespace unstarve {
namespace {

constexpr char empty[] = "the file is empty";

// `AnyJpeg` is Jpeg or BaselineJpeg from here on: the same image, decoded by libjpeg-turbo or by us.
template <typename AnyJpeg>
Extent upright(const AnyJpeg &jpeg) {
    const Extent stored = jpeg.stored();
    return is_turned(jpeg.orientation()) ? Extent{stored.width, stored.height} : stored;
}

// Where a window of the upright image lies in the stored one: two opposite corners tell.
template <typename AnyJpeg>
Window stored_window(const Window &window, const AnyJpeg &jpeg) {
    const Extent stored = jpeg.stored();
    const Walk walk = upright_walk(jpeg.orientation(), stored.height, stored.width);
    const auto place = [&](std::size_t y, std::size_t x) {
        return static_cast<std::size_t>(walk.first + static_cast<std::ptrdiff_t>(y) * walk.row_step +
                                        static_cast<std::ptrdiff_t>(x) * walk.pixel_step);
    };
    const std::size_t one = place(window.top, window.left);
    const std::size_t other = place(window.top + window.height - 1, window.left + window.width - 1);
    const std::size_t left = std::min(one % stored.width, other % stored.width);
    const std::size_t top = std::min(one / stored.width, other / stored.width);
    const bool turned = is_turned(jpeg.orientation());
    return {top, left, turned ? window.width : window.height, turned ? window.height : window.width};
}

void walk_row(const std::uint8_t *block, std::ptrdiff_t from, std::ptrdiff_t step, std::size_t count,
              std::uint8_t *out) {
    for (std::size_t x = 0; x < count; ++x, from += step) {
        std::memcpy(out + x * 4, block + from * 4, 4);
    }
}

void start(Jpeg &jpeg, const Window &stored) { jpeg.start(stored, 4); }
void start(BaselineJpeg &jpeg, const Window &stored) { jpeg.start(stored); }

// Decodes a window of the upright image and hands its rows of 4 bytes per pixel to `take`, a few at once, from
// top to bottom.
template <typename AnyJpeg, typename Take>
void each_upright_rows(AnyJpeg &jpeg, const Window &window, Scratch &scratch, Take take) {
    const Window stored = stored_window(window, jpeg);
    start(jpeg, stored);
    const PixelRows rows = scratch.rows_for(std::max(jpeg.row_pixels(), window.width));
    const std::size_t margin_bytes = jpeg.margin_pixels() * 4;
    const bool as_stored = jpeg.orientation() == 1;
    if (!as_stored) {
        scratch.block.resize(stored.height * stored.width * 4);
        for (std::size_t y = 0; y < stored.height; ++y) {
            jpeg.read_row(rows[0]);
            std::memcpy(scratch.block.data() + y * stored.width * 4, rows[0] + margin_bytes, stored.width * 4);
        }
    }
    const Walk walk = upright_walk(jpeg.orientation(), stored.height, stored.width);
    std::ptrdiff_t from = walk.first;
    for (std::size_t y = 0; y < window.height; y += rows_at_once) {
        const std::size_t count = std::min(rows_at_once, window.height - y);
        const std::uint8_t *ready[rows_at_once];
        for (std::size_t i = 0; i < count; ++i, from += walk.row_step) {
            if (as_stored) {
                jpeg.read_row(rows[i]);
                ready[i] = rows[i] + margin_bytes;
            } else {
                walk_row(scratch.block.data(), from, walk.pixel_step, window.width, rows[i]);
                ready[i] = rows[i];
            }
        }
        take(ready, count);
    }
}

template <typename AnyJpeg>
void cut_from(AnyJpeg &jpeg, const Cut &cut, const Target &target, Scratch &scratch) {
    const Window window = start_cut(cut, upright(jpeg), target, scratch.resizer);
    each_upright_rows(jpeg, window, scratch, [&](const std::uint8_t *const *rows, std::size_t count) {
        scratch.resizer.add_rows(rows, count);
    });
}

template <typename AnyJpeg>
void write_whole(AnyJpeg &jpeg, Extent extent, Scratch &scratch, std::uint8_t *out) {
    const Window all{0, 0, extent.height, extent.width};
    each_upright_rows(jpeg, all, scratch, [&](const std::uint8_t *const *rows, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i, out += extent.width * 3) {
            for (std::size_t x = 0; x < extent.width; ++x) {
                std::memcpy(out + x * 3, rows[i] + x * 4, 3);
            }
        }
    });
}

// Whether UNSTARVE_JPEG=turbo leaves every image to libjpeg-turbo: to compare the two, or to rule ours out.
bool turbo_alone() {
    static const bool is_asked_for = [] {
        const char *const chosen = std::getenv("UNSTARVE_JPEG");
        return chosen != nullptr && std::strcmp(chosen, "turbo") == 0;
    }();
    return is_asked_for;
}

// Calls `work` with our own decoder. Returns false where the image is for libjpeg-turbo, from the start: what `work`
// wrote so far is then written again.
template <typename Work>
bool decoded_by_us(const Encoded &image, Scratch &scratch, Work work) {
    if (turbo_alone()) {
        return false;
    }
    try {
        scratch.baseline.open(image.data, image.size, image.upright);
        work(scratch.baseline);
        return true;
    } catch (const Unusual &) {
        return false;
    }
}

Outcome decode_cut(const Encoded &image, const Cut &cut, const Target &target, Scratch &scratch) {
    if (image.size == 0) {
        throw ImageError(empty);
    }
    if (!looks_like_jpeg(image.data, image.size)) {
        return Outcome::not_for_us;
    }
    if (decoded_by_us(image, scratch, [&](BaselineJpeg &jpeg) { cut_from(jpeg, cut, target, scratch); })) {
        return Outcome::decoded;
    }
    Jpeg jpeg(image.data, image.size, image.upright);
    if (!jpeg.supported()) {
        return Outcome::not_for_us;
    }
    cut_from(jpeg, cut, target, scratch);
    return Outcome::decoded;
}

}  // namespace

std::vector<Result> decode_cuts(const std::vector<Encoded> &images, const std::vector<Cut> &cuts,
                                const Batch &batch, unsigned threads) {
    return for_each_image(images.size(), threads, [&](std::size_t at, Scratch &scratch) {
        return decode_cut(images[at], cuts[at], batch.at(at), scratch);
    });
}

Measured measure(const Encoded &image) {
    Measured measured;
    if (image.size == 0) {
        measured.result = {Outcome::failed, empty};
        return measured;
    }
    measured.result.outcome = Outcome::not_for_us;
    if (!looks_like_jpeg(image.data, image.size)) {
        return measured;
    }
    try {
        const Jpeg jpeg(image.data, image.size, image.upright);
        if (jpeg.supported()) {
            measured = {{}, upright(jpeg).height, upright(jpeg).width, jpeg.orientation(), jpeg.is_plain()};
        }
    } catch (const ImageError &error) {
        measured.result = {Outcome::failed, error.what()};
    } catch (const std::bad_alloc &) {
        measured.result = {Outcome::failed, no_memory};
    }
    return measured;
}

std::vector<Measured> measure(const std::vector<Encoded> &images, unsigned threads) {
    std::vector<Measured> measured(images.size());
    run_in_order(threads, images.size(), [&](std::size_t at) { measured[at] = measure(images[at]); });
    return measured;
}

Result decode_whole(const Encoded &image, std::size_t height, std::size_t width, std::uint8_t *out) {
    const auto check = [&](const auto &jpeg, bool is_supported) {
        const Extent extent = upright(jpeg);
        if (extent.height != height || extent.width != width || !is_supported) {
            throw ImageError("the image has changed since it was measured");
        }
    };
    return for_each_image(1, 1, [&](std::size_t, Scratch &scratch) {
        if (decoded_by_us(image, scratch, [&](BaselineJpeg &jpeg) {
                check(jpeg, true);
                write_whole(jpeg, {height, width}, scratch, out);
            })) {
            return Outcome::decoded;
        }
        Jpeg jpeg(image.data, image.size, image.upright);
        check(jpeg, jpeg.supported());
        const Window all{0, 0, height, width};
        if (jpeg.orientation() == 1) {
            jpeg.start(all, 3);
            for (std::size_t y = 0; y < height; ++y) {
                jpeg.read_row(out + y * width * 3);
            }
            return Outcome::decoded;
        }
        write_whole(jpeg, {height, width}, scratch, out);
        return Outcome::decoded;
    })[0];
}

}  // namespace unstarve
