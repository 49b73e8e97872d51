// Our own decoder against libjpeg-turbo's: the same pixels, to the last bit, or Unusual.
#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "check.h"
#include "jpeg.h"
#include "jpeg_baseline.h"
#include "jpeg_colour.h"
#include "jpeg_idct.h"
#include "jpegs.h"

namespace {

using unstarve::BaselineJpeg;
using unstarve::Jpeg;
using unstarve::Unusual;
using unstarve::Window;
using Bytes = std::vector<std::uint8_t>;

void start(Jpeg &jpeg, const Window &window) { jpeg.start(window, 4); }
void start(BaselineJpeg &jpeg, const Window &window) { jpeg.start(window); }

// The pixels of a window, 3 bytes each.
template <typename AnyJpeg>
Bytes window_of(AnyJpeg &jpeg, const Window &window) {
    start(jpeg, window);
    Bytes row(jpeg.row_pixels() * 4);
    Bytes pixels;
    for (std::size_t y = 0; y < window.height; ++y) {
        jpeg.read_row(row.data());
        for (std::size_t x = 0; x < window.width; ++x) {
            const std::uint8_t *const pixel = row.data() + (jpeg.margin_pixels() + x) * 4;
            pixels.insert(pixels.end(), pixel, pixel + 3);
        }
    }
    return pixels;
}

Bytes by_libjpeg(const Bytes &file, const Window &window) {
    Jpeg jpeg(file.data(), file.size());
    return window_of(jpeg, window);
}

Bytes cut_out(const Bytes &pixels, std::size_t width, const Window &window) {
    Bytes part;
    for (std::size_t y = 0; y < window.height; ++y) {
        const auto from = pixels.begin() + static_cast<std::ptrdiff_t>(((window.top + y) * width + window.left) * 3);
        part.insert(part.end(), from, from + static_cast<std::ptrdiff_t>(window.width * 3));
    }
    return part;
}

// One decoder for all, as a thread has it.
void windows_are_equal(BaselineJpeg &ours, const Kind &kind, std::mt19937 &random, int windows) {
    const Bytes file = jpeg_of(kind);
    const Window all{0, 0, kind.height, kind.width};
    const Bytes whole = by_libjpeg(file, all);
    for (int i = 0; i < windows; ++i) {
        const std::size_t height = 1 + random() % kind.height;
        const std::size_t width = 1 + random() % kind.width;
        const Window part{random() % (kind.height - height + 1), random() % (kind.width - width + 1), height, width};
        const Window window = i == 0 ? all : part;
        ours.open(file.data(), file.size());
        CHECK(window_of(ours, window) == cut_out(whole, kind.width, window));
    }
}

void every_usual_jpeg_is_equal() {
    std::mt19937 random(3);
    BaselineJpeg ours;
    for (const auto &[across, down] : {std::pair{1, 1}, {2, 1}, {2, 2}}) {
        for (const int quality : {1, 30, 75, 95, 100}) {
            for (const bool own_codes : {false, true}) {
                Kind kind{97, 131, across, down};
                kind.quality = quality;
                kind.own_codes = own_codes;
                windows_are_equal(ours, kind, random, 12);
                kind.grey = true;
                windows_are_equal(ours, kind, random, 5);
            }
        }
        for (unsigned side = 1; side < 40; ++side) {
            windows_are_equal(ours, {side, 45 - side, across, down}, random, 4);
        }
        for (const unsigned restart_rows : {1u, 2u}) {
            windows_are_equal(ours, {160, 128, across, down, false, false, restart_rows}, random, 25);
        }
    }
}

void what_is_unusual_is_left_to_libjpeg() {
    Kind red_green_blue{32, 32, 1, 1};
    red_green_blue.colours = JCS_RGB;
    for (const Kind &kind : {Kind{32, 32, 2, 2, true}, Kind{32, 32, 1, 2}, Kind{32, 32, 4, 1}, Kind{32, 3},
                             red_green_blue}) {
        const Bytes file = jpeg_of(kind);
        BaselineJpeg ours;
        CHECK_THROWS(ours.open(file.data(), file.size()), Unusual);
    }
}

// Wherever a file ends or is overwritten, the pixels are libjpeg-turbo's or there are none.
void damage_gives_no_other_pixels() {
    std::mt19937 random(4);
    BaselineJpeg ours;
    std::vector<Bytes> files;
    for (const auto &[across, down] : {std::pair{1, 1}, {2, 1}, {2, 2}}) {
        for (const unsigned restart_rows : {0u, 1u, 2u}) {
            files.push_back(jpeg_of({64, 80, across, down, false, false, restart_rows}));
        }
    }
    const Window all{0, 0, 64, 80};
    unsigned refused = 0;
    for (unsigned i = 0; i < 3000; ++i) {
        Bytes file = files[i % files.size()];
        const std::size_t at = file.size() - 1 - random() % (file.size() * 2 / 3);
        file[at] = static_cast<std::uint8_t>(random());
        try {
            ours.open(file.data(), file.size());
            const Bytes pixels = window_of(ours, all);
            CHECK(pixels == by_libjpeg(file, all));
        } catch (const Unusual &) {
            ++refused;
        }
    }
    CHECK(refused > 300);
    CHECK(refused < 2700);
}

template <typename Number>
std::vector<Number> numbers(std::mt19937 &random, std::size_t count, int low, int high) {
    std::vector<Number> made(count);
    for (Number &number : made) {
        number = static_cast<Number>(low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1)));
    }
    return made;
}

void vectors_compute_what_plain_code_does() {
    std::mt19937 random(5);
    for (int i = 0; i < 3000; ++i) {
        const int most = i % 3 == 0 ? 32767 : i % 3 == 1 ? 1023 : 20;
        auto one = numbers<std::int16_t>(random, 64, -most, most);
        auto other = numbers<std::int16_t>(random, 64, -most, most);
        for (auto *const block : {&one, &other}) {
            if (random() % 4 == 0) {
                std::fill(block->begin() + 8, block->end(), std::int16_t{0});  // which has a shorter way
            }
        }
        const auto quantizers = numbers<std::uint16_t>(random, 64, 1, i % 2 == 0 ? 255 : 10);
        Bytes plain(8 * 20);
        Bytes best(8 * 20);
        unstarve::two_blocks_plain({one.data(), quantizers.data(), plain.data(), 20},
                                   {other.data(), quantizers.data(), plain.data() + 10, 20});
        unstarve::best_two_blocks()({one.data(), quantizers.data(), best.data(), 20},
                                    {other.data(), quantizers.data(), best.data() + 10, 20});
        CHECK(plain == best);
        auto flat = std::vector<std::int16_t>(64);
        flat[0] = one[0];
        unstarve::two_blocks_plain({flat.data(), quantizers.data(), plain.data(), 20},
                                   {flat.data(), quantizers.data(), plain.data() + 10, 20});
        unstarve::flat_block(one[0], quantizers[0], best.data(), 20);
        unstarve::flat_block(one[0], quantizers[0], best.data() + 10, 20);
        CHECK(plain == best);
    }
    using unstarve::Sampling;
    for (const Sampling sampling : {Sampling::grey, Sampling::each, Sampling::two, Sampling::four}) {
        for (int i = 0; i < 300; ++i) {
            const std::size_t pixels = unstarve::piece_pixels * (1 + random() % 4);
            const auto samples = numbers<std::uint8_t>(random, 5 * (pixels + 2), 0, 255);
            const auto at = [&](std::size_t row) { return samples.data() + row * (pixels + 2) + 1; };
            const unstarve::SampleRows rows{at(0), {at(1), at(2)}, {at(3), at(4)}};
            Bytes plain(pixels * 4);
            Bytes best(pixels * 4);
            unstarve::to_pixels_plain(sampling, rows, pixels, plain.data());
            unstarve::best_to_pixels()(sampling, rows, pixels, best.data());
            for (std::size_t x = 0; x < pixels * 4; ++x) {
                CHECK(x % 4 == 3 || plain[x] == best[x]);
            }
        }
    }
}

}  // namespace

int main() {
    vectors_compute_what_plain_code_does();
    every_usual_jpeg_is_equal();
    what_is_unusual_is_left_to_libjpeg();
    damage_gives_no_other_pixels();
}
