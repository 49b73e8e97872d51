// What each position of a resized line takes from the line it is made of: Pillow's antialiased bilinear.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace unstarve {

// Weights are whole numbers that sum up to about 1 << weight_bits, as in Pillow: the same bytes give the same bytes.
constexpr int weight_bits = 32 - 8 - 2;

struct Weights {
    std::size_t taps = 0;               // room for the weights of one position; those beyond its count are 0
    std::vector<std::size_t> first;     // of the line, for each position of the resized one
    std::vector<std::size_t> count;
    std::vector<std::int32_t> values;   // `taps` for each position
};

// Fills `weights` for `in` pixels that become `out`. Neither is 0. Memory it has is used again.
void weigh(std::size_t in, std::size_t out, Weights &weights);

}  // namespace unstarve
