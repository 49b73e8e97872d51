// What each position of a resized line takes from the line it is made of: Pillow's antialiased bilinear.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace unstarve {

// Weights are whole numbers that sum up to about 1 << weight_bits, as in Pillow: the same bytes give the same bytes.
constexpr int weight_bits = 32 - 8 - 2;

// Positions `first` to `first + count - 1` of the line of `out` pixels that a line of `in` pixels becomes.
struct Span {
    std::size_t in;
    std::size_t out;
    std::size_t first;
    std::size_t count;
};

struct Weights {
    std::size_t begin = 0;              // of the line: the pixels that the positions are made of
    std::size_t end = 0;
    std::size_t taps = 0;               // room for the weights of one position; those beyond its count are 0
    std::vector<std::size_t> first;     // counted from `begin`, for each position
    std::vector<std::size_t> count;
    std::vector<std::int32_t> values;   // `taps` for each position
};

// Fills `weights` for the positions of a span, none of whose numbers but `first` is 0. Memory it has is used again.
void weigh(const Span &span, Weights &weights);

}  // namespace unstarve
