// The JPEG decoders: header, EXIF, our own baseline decoder, libjpeg-turbo behind it, cut and resize.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "images.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    constexpr std::size_t side = 16;
    constexpr std::size_t whole_pixels = 1 << 20;
    const unstarve::Encoded image{data, size};
    const unstarve::Measured found = unstarve::measure(image);
    const auto height = static_cast<std::int64_t>(found.height);
    const auto width = static_cast<std::int64_t>(found.width);
    std::vector<std::byte> out(3 * side * side * 3);
    const unstarve::Batch batch{{out.data(), side, side, 1, false, nullptr}};
    unstarve::decode_cuts({image, image, image},
                          {{true, 0, 0, 0, 0, false},
                           {false, height / 3, width / 3, height - height / 3, width / 2, true},
                           {false, height / 2, 0, 1, width, false}},
                          batch, 1);
    if (found.result.outcome == unstarve::Outcome::decoded && found.height * found.width <= whole_pixels) {
        std::vector<std::uint8_t> pixels(found.height * found.width * 3);
        unstarve::decode_whole(image, found.height, found.width, pixels.data());
    }
    return 0;
}
