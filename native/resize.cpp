#include "resize.h"

#include "resize_lines.h"

namespace unstarve {
namespace {

const LineResizer lines = best_line_resizer();

}  // namespace

void Resizer::start(std::size_t height, std::size_t width, bool flip, const Target &target) {
    target_ = target;
    flip_ = flip;
    rows_in_ = rows_out_ = 0;
    weigh(width, target.width, across_);
    weigh(height, target.height, down_);
    across_taps_ = across_.taps + across_.taps % 2;
    across_values_.assign(target.width * across_taps_ * 4, 0);
    for (std::size_t x = 0; x < target.width; ++x) {
        for (std::size_t i = 0; i < across_.count[x] * 4; ++i) {
            across_values_[x * across_taps_ * 4 + i] = across_.values[x * across_.taps + i / 4];
        }
    }
    row_bytes_ = (target.width * 4 + piece_bytes - 1) / piece_bytes * piece_bytes;
    ring_rows_ = down_.taps;
    ring_.resize(ring_rows_ * row_bytes_);
    line_.resize(row_bytes_);
    window_.resize(down_.taps);
}

void Resizer::add_row(const std::uint8_t *pixels) {
    lines.along_x(pixels, across_, across_values_.data(), across_taps_, flip_, ring_row(rows_in_));
    ++rows_in_;
    while (rows_out_ < target_.height && down_.first[rows_out_] + down_.count[rows_out_] <= rows_in_) {
        const std::size_t count = down_.count[rows_out_];
        for (std::size_t i = 0; i < count; ++i) {
            window_[i] = ring_row(down_.first[rows_out_] + i);
        }
        lines.along_y(window_.data(), down_.values.data() + rows_out_ * down_.taps, count, row_bytes_, line_.data());
        finish_row(line_.data(), rows_out_, target_);
        ++rows_out_;
    }
}

}  // namespace unstarve
