// Resize an image as Pillow does, row by row into the batch, keeping only a few rows in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "finish.h"
#include "image.h"
#include "resize_lines.h"
#include "weights.h"

namespace unstarve {

// Takes the rows of an image from top to bottom and writes each row of the target as soon as its source rows are
// there. As in Pillow, rows are first resized along x and rounded to bytes, then columns along y.
class Resizer {
  public:
    // Prepares for an image that is `resized`, of which the target is a part. Returns the window of the image from
    // which this part is made: add only its rows. May throw std::bad_alloc.
    Window start(Extent image, const Resized &resized, bool flip, const Target &target);

    // Pixels after the end of a row that may be read but are not used.
    std::size_t slack_pixels() const { return pairs_ * 2; }

    std::size_t kept_bytes() const;

    // The next rows, `rows_at_once` of them or, at the end, fewer. Each has the window's pixels of 4 bytes, red,
    // green, blue and an unused one, and the slack.
    void add_rows(const std::uint8_t *const *rows, std::size_t count);

  private:
    void write_ready_rows();
    std::uint8_t *ring_row(std::size_t row) { return ring_.data() + row % ring_rows_ * row_bytes_; }

    Target target_{};
    bool flip_ = false;
    Weights across_;
    Weights down_;
    std::vector<std::int32_t> across_values_;  // of `across_`, each four times: one for each byte of a pixel
    std::size_t pairs_ = 0;                    // of weights along x, the same for each position
    std::vector<std::uint8_t> ring_;  // the last rows, resized along x
    std::size_t ring_rows_ = 0;
    std::size_t row_bytes_ = 0;
    std::vector<const std::uint8_t *> window_;
    std::vector<std::uint8_t> line_;
    std::size_t rows_in_ = 0;
    std::size_t rows_out_ = 0;
};

}  // namespace unstarve
