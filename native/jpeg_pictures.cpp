// The part of pictures.h that needs libjpeg-turbo.
#include <algorithm>
#include <cstring>

#include "cutting.h"
#include "exif.h"
#include "jpeg.h"
#include "pictures.h"

namespace unstarve {
namespace {

constexpr char empty[] = "the file is empty";

Extent upright(const Jpeg &jpeg) {
    const Extent stored = jpeg.stored();
    return is_turned(jpeg.orientation()) ? Extent{stored.width, stored.height} : stored;
}

// Where a window of the upright picture lies in the stored one: two opposite corners tell.
Window stored_window(const Window &window, const Jpeg &jpeg) {
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

// Decodes a window of the upright picture and hands its rows of 4 bytes per pixel to `take`, from top to bottom.
template <typename Take>
void each_upright_row(Jpeg &jpeg, const Window &window, Scratch &scratch, Take take) {
    const Window stored = stored_window(window, jpeg);
    jpeg.start(stored, 4);
    std::uint8_t *const row = scratch.row_for(std::max(jpeg.row_pixels(), window.width));
    if (jpeg.orientation() == 1) {
        for (std::size_t y = 0; y < stored.height; ++y) {
            jpeg.read_row(row);
            take(row + jpeg.margin_pixels() * 4);
        }
        return;
    }
    scratch.block.resize(stored.height * stored.width * 4);
    for (std::size_t y = 0; y < stored.height; ++y) {
        jpeg.read_row(row);
        std::memcpy(scratch.block.data() + y * stored.width * 4, row + jpeg.margin_pixels() * 4, stored.width * 4);
    }
    const Walk walk = upright_walk(jpeg.orientation(), stored.height, stored.width);
    const std::uint8_t *from = scratch.block.data() + walk.first * 4;
    for (std::size_t y = 0; y < window.height; ++y, from += walk.row_step * 4) {
        for (std::size_t x = 0; x < window.width; ++x) {
            std::memcpy(row + x * 4, from + static_cast<std::ptrdiff_t>(x) * walk.pixel_step * 4, 4);
        }
        take(row);
    }
}

Outcome decode_cut(const Encoded &picture, const Cut &cut, const Target &target, Scratch &scratch) {
    if (picture.size == 0) {
        throw PictureError(empty);
    }
    if (!looks_like_jpeg(picture.data, picture.size)) {
        return Outcome::not_for_us;
    }
    Jpeg jpeg(picture.data, picture.size);
    if (!jpeg.supported()) {
        return Outcome::not_for_us;
    }
    const Window window = window_of(cut, upright(jpeg));
    scratch.resizer.start(window.height, window.width, cut.flip, target);
    each_upright_row(jpeg, window, scratch, [&](const std::uint8_t *row) { scratch.resizer.add_row(row); });
    return Outcome::decoded;
}

}  // namespace

std::vector<Result> decode_cuts(const std::vector<Encoded> &pictures, const std::vector<Cut> &cuts,
                                const Batch &batch, unsigned threads) {
    return for_each_picture(pictures.size(), threads, [&](std::size_t at, Scratch &scratch) {
        return decode_cut(pictures[at], cuts[at], batch.at(at), scratch);
    });
}

Measured measure(const Encoded &picture) {
    Measured measured;
    if (picture.size == 0) {
        measured.result = {Outcome::failed, empty};
        return measured;
    }
    measured.result.outcome = Outcome::not_for_us;
    if (!looks_like_jpeg(picture.data, picture.size)) {
        return measured;
    }
    try {
        const Jpeg jpeg(picture.data, picture.size);
        if (jpeg.supported()) {
            measured = {{}, upright(jpeg).height, upright(jpeg).width};
        }
    } catch (const PictureError &error) {
        measured.result = {Outcome::failed, error.what()};
    }
    return measured;
}

Result decode_whole(const Encoded &picture, std::size_t height, std::size_t width, std::uint8_t *out) {
    return for_each_picture(1, 1, [&](std::size_t, Scratch &scratch) {
        Jpeg jpeg(picture.data, picture.size);
        const Extent extent = upright(jpeg);
        if (extent.height != height || extent.width != width || !jpeg.supported()) {
            throw PictureError("the picture has changed since it was measured");
        }
        each_upright_row(jpeg, {0, 0, height, width}, scratch, [&](const std::uint8_t *row) {
            for (std::size_t x = 0; x < width; ++x) {
                std::memcpy(out + x * 3, row + x * 4, 3);
            }
            out += width * 3;
        });
        return Outcome::decoded;
    })[0];
}

}  // namespace unstarve
