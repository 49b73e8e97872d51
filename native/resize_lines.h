// The inner loops of the resize: lines of pixels along x, one line of columns along y.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace unstarve {

// Lines along x are computed this many at once, which share the weights.
constexpr std::size_t rows_at_once = 4;

// Lines along y are computed in pieces of this many bytes; the memory of each row must be a multiple of it.
constexpr std::size_t piece_bytes = 32;

struct LineResizer {
    // Resizes `rows_at_once` lines of 4 bytes per pixel. first[x] is the first pixel that position x is made of; of
    // `weights` there are 2 * pairs for each position, each four times, one for each byte of a pixel. Pixels behind
    // the line are read where weights reach so far.
    void (*along_x)(const std::uint8_t *const *rows, const std::vector<std::size_t> &first,
                    const std::int32_t *weights, std::size_t pairs, bool flip, std::uint8_t *const *out);

    // Makes one row of `count` rows, by one weight for each.
    void (*along_y)(const std::uint8_t *const *rows, const std::int32_t *weights, std::size_t count,
                    std::size_t row_bytes, std::uint8_t *out);

    // Pixels of 3 bytes → pixels of 4, the last of which says nothing.
    void (*widen)(const std::uint8_t *pixels, std::size_t count, std::uint8_t *out);
};

// Whatever the processor, the same bytes.
LineResizer plain_line_resizer();
LineResizer best_line_resizer();

}  // namespace unstarve
