// Samples of a JPEG's components → rows of pixels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unstarve {

// For how many pixels one colour is stored.
enum class Sampling { grey, each, two, four };

// The samples that a row of pixels is made of, from an even column on. Where one colour is for two or four pixels,
// those before the first and behind the last of a row can be read and are equal to them; where it is for four, the
// second row of each pair is that on the other side of the pixels.
struct SampleRows {
    const std::uint8_t *light;
    const std::uint8_t *blue[2];
    const std::uint8_t *red[2];
};

// Pixels are made, and samples read, in pieces of this many.
constexpr std::size_t piece_pixels = 32;

// Blends colours and turns them into pixels of 4 bytes as libjpeg-turbo does, to the last bit.
using ToPixels = void (*)(Sampling sampling, const SampleRows &rows, std::size_t pixels, std::uint8_t *out);

// Whatever the processor, the same bytes.
void to_pixels_plain(Sampling sampling, const SampleRows &rows, std::size_t pixels, std::uint8_t *out);
ToPixels best_to_pixels();

}  // namespace unstarve
