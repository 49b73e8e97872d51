// The header of the most common kind of JPEG.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "jpeg_huffman.h"
#include "image.h"

namespace unstarve {

// Twice the number at which Pillow warns of a decompression bomb; the same as in
// fixes/datasets/images/pillow_decoder.py.
constexpr std::uint64_t max_pixels = 178'956'970;

// Every 8×8 block takes at least a bit, and with the sparsest sampling eight blocks cover 32×32 pixels.
constexpr std::uint64_t max_pixels_per_byte = 1024;

// Whether the end marker of a JPEG comes after `from`. Coded data contain no other pair of bytes like it.
bool has_jpeg_end(const std::uint8_t *from, const std::uint8_t *end);

// Baseline, 8 bits, Huffman-coded, all in one scan: grey, or YCbCr with one colour sample for 1×1, 2×1 or 2×2 pixels.
struct JpegHeader {
    Extent extent{};
    std::size_t components = 0;  // 1 or 3
    std::size_t across = 1;      // pixels per colour sample
    std::size_t down = 1;
    std::size_t restart_interval = 0;  // in units of 8·across × 8·down pixels; 0: none
    int orientation = 1;
    struct Component {
        std::array<std::uint16_t, 64> quantizers{};  // in natural order
        HuffmanCode dc;
        HuffmanCode ac;
    };
    std::array<Component, 3> component{};
    const std::uint8_t *coded = nullptr;  // after the header
};

// Throws Unusual for any other kind of file and for a damaged one.
JpegHeader read_jpeg_header(const std::uint8_t *data, std::size_t size);

}  // namespace unstarve
