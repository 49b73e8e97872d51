#include <algorithm>

#include "jpeg_baseline.h"

namespace unstarve {
namespace {

// Before a row: the sample that is repeated there. Behind it: pieces of pixels are made to their end.
constexpr std::size_t before_row = 16;
constexpr std::size_t behind_row = 2 * piece_pixels;

}  // namespace

std::uint8_t *Plane::row(std::size_t y) { return samples.data() + y % ring_rows * stride + before_row; }

void Plane::make_ring() {
    ring_rows = 2 * 8 * blocks_down;
    stride = before_row + (end_column - first_column) * 8 + behind_row;
    samples.resize(std::max(samples.size(), ring_rows * stride));
}

// Colours are blended with those beyond the image's left and right edge as if the last went on there.
void Plane::repeat_edges(std::size_t unit_row) {
    for (std::size_t y = unit_row * blocks_down * 8; y < (unit_row + 1) * blocks_down * 8; ++y) {
        std::uint8_t *const first = row(y);
        if (first_column == 0) {
            first[-1] = first[0];
        }
        if (end_column * 8 >= width) {
            std::uint8_t *const behind = first + (width - first_column * 8);
            *behind = behind[-1];
        }
    }
}

}  // namespace unstarve
