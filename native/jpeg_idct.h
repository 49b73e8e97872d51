// The numbers of a JPEG's blocks → samples of 8×8 pixels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unstarve {

// A block of 64 numbers in natural order, and where its samples go.
struct Block {
    const std::int16_t *numbers;
    const std::uint16_t *quantizers;
    std::uint8_t *out;
    std::size_t stride;
};

// What libjpeg-turbo's "slow" transform makes of two blocks, to the last bit. As there, sums have 16 bits in places,
// which only numbers of damaged files overflow.
using TwoBlocks = void (*)(const Block &one, const Block &other);

// Whatever the processor, the same bytes.
void two_blocks_plain(const Block &one, const Block &other);
TwoBlocks best_two_blocks();

// A block of which only the first number is not 0.
void flat_block(std::int32_t number, std::uint16_t quantizer, std::uint8_t *out, std::size_t stride);

}  // namespace unstarve
