// The header of the most usual sort of JPEG.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "jpeg_huffman.h"
#include "image.h"

namespace unstarve {

// Twice the number at which Pillow warns of a decompression bomb; fixes/datasets/images/pillow_decoder.py knows the same number.
constexpr std::uint64_t max_pixels = 178'956'970;

// Every block of 8×8 takes a bit at least, and with the oddest sampling eight blocks cover 32×32 pixels.
constexpr std::uint64_t max_pixels_per_byte = 1024;

// Whether the marker that ends a JPEG comes after `from`. Within coded data no other pair of bytes looks like it.
bool has_jpeg_end(const std::uint8_t *from, const std::uint8_t *end);

// Baseline, 8 bits, Huffman-coded, all in one scan: grey, or YCbCr with a colour for 1×1, 2×1 or 2×2 pixels.
struct JpegHeader {
    Extent extent{};
    std::size_t components = 0;  // 1 or 3
    std::size_t across = 1;      // pixels for which one colour is stored
    std::size_t down = 1;
    std::size_t restart_interval = 0;  // in units of 8·across × 8·down pixels; 0: none
    int orientation = 1;
    struct Component {
        std::array<std::uint16_t, 64> quantizers{};  // in natural order
        HuffmanCode dc;
        HuffmanCode ac;
    };
    std::array<Component, 3> component{};
    const std::uint8_t *coded = nullptr;  // behind the header
};

// Throws Unusual for every other sort of file and for what is damaged.
JpegHeader read_jpeg_header(const std::uint8_t *data, std::size_t size);

}  // namespace unstarve
