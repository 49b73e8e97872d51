// An image, row by row → the batch: resized as Pillow does it, flipped, finished, in memory for a few rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "finish.h"
#include "image.h"
#include "resize_lines.h"
#include "weights.h"

namespace unstarve {

// Takes the rows of one image from top to bottom and writes each row of the target as soon as all it is made
// of are there. First every row is resized along x and rounded to bytes, then columns along y, as Pillow does.
class Resizer {
  public:
    // Makes ready for an image that is `resized`, of which the target is a part. Returns the window of the image that
    // this part is made of: only its rows are to be added. May throw std::bad_alloc.
    Window start(Extent image, const Resized &resized, bool flip, const Target &target);

    // Pixels behind the end of a row that may be read, though nothing is made of them.
    std::size_t slack_pixels() const { return pairs_ * 2; }

    std::size_t kept_bytes() const;

    // The next rows, `rows_at_once` of them or, at the end, fewer. Each has the window's pixels of 4 bytes, red,
    // green, blue and one that is not looked at, and the slack.
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
