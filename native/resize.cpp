#include "resize.h"

#include <algorithm>

namespace unstarve {
namespace {

const LineResizer lines = best_line_resizer();

}  // namespace

Window Resizer::start(Extent image, const Resized &resized, bool flip, const Target &target) {
    target_ = target;
    flip_ = flip;
    rows_in_ = rows_out_ = 0;
    weigh({image.width, resized.size.width, resized.left, target.width}, across_);
    weigh({image.height, resized.size.height, resized.top, target.height}, down_);
    // The same number of weights everywhere: a loop that is always equally long is a fast one.
    pairs_ = (*std::max_element(across_.count.begin(), across_.count.end()) + 1) / 2;
    across_values_.assign(target.width * pairs_ * 8, 0);
    for (std::size_t x = 0; x < target.width; ++x) {
        for (std::size_t i = 0; i < across_.count[x] * 4; ++i) {
            across_values_[x * pairs_ * 8 + i] = across_.values[x * across_.taps + i / 4];
        }
    }
    row_bytes_ = (target.width * 4 + piece_bytes - 1) / piece_bytes * piece_bytes;
    ring_rows_ = down_.taps + rows_at_once;
    ring_.resize((ring_rows_ + 1) * row_bytes_);  // the one more is where rows go that are not there
    line_.resize(row_bytes_);
    window_.resize(down_.taps);
    return {down_.begin, across_.begin, down_.end - down_.begin, across_.end - across_.begin};
}

void Resizer::add_rows(const std::uint8_t *const *rows, std::size_t count) {
    const std::uint8_t *from[rows_at_once];
    std::uint8_t *to[rows_at_once];
    for (std::size_t i = 0; i < rows_at_once; ++i) {
        from[i] = rows[std::min(i, count - 1)];
        to[i] = i < count ? ring_row(rows_in_ + i) : ring_.data() + ring_rows_ * row_bytes_;
    }
    lines.along_x(from, across_.first, across_values_.data(), pairs_, flip_, to);
    rows_in_ += count;
    write_ready_rows();
}

std::size_t Resizer::kept_bytes() const {
    const std::size_t weights = across_.values.capacity() + down_.values.capacity() + across_values_.capacity();
    return weights * sizeof(std::int32_t) + ring_.capacity();
}

void Resizer::write_ready_rows() {
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
