#include "jpeg_baseline.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "jpeg_idct.h"

namespace unstarve {
namespace {

const TwoBlocks two_blocks = best_two_blocks();
const ToPixels to_pixels = best_to_pixels();

std::size_t divided_up(std::size_t number, std::size_t by) { return (number + by - 1) / by; }

// Larger than any file means it to be, and far from where numbers of 16 bits end.
constexpr std::uint32_t largest_first_number = 1 << 14;

}  // namespace

void BaselineJpeg::open(const std::uint8_t *data, std::size_t size, bool upright) {
    header_ = read_jpeg_header(data, size);
    header_.orientation = upright ? header_.orientation : 1;
    file_end_ = data + size;
    make_tables();
}

// Nearly all files have the same codes: they are made once. Where two components share codes they share tables, which
// take half of a processor's first cache.
void BaselineJpeg::make_tables() {
    for (std::size_t i = 0; i < header_.components; ++i) {
        const JpegHeader::Component &component = header_.component[i];
        const auto fits = [&](const Tables &tables) {
            return tables.dc_code == component.dc && tables.ac_code == component.ac;
        };
        tables_of_[i] = &tables_[i];
        for (std::size_t earlier = 0; earlier < i && tables_of_[i] == &tables_[i]; ++earlier) {
            tables_of_[i] = fits(*tables_of_[earlier]) ? tables_of_[earlier] : tables_of_[i];
        }
        Tables &own = tables_[i];
        if (tables_of_[i] == &own && !fits(own)) {
            own.dc_code = {};  // should the next line throw, nothing looks as if it were made
            own.ac_code = {};
            own.dc.make(component.dc);
            own.ac.make(component.ac);
            own.dc_code = component.dc;
            own.ac_code = component.ac;
        }
    }
}

// Which blocks of a component the window needs: colours are blended with those next to them.
void BaselineJpeg::place(std::size_t component, const Window &window) {
    Plane &plane = planes_[component];
    const bool is_colour = component > 0;
    const std::size_t across = is_colour ? header_.across : 1;
    const std::size_t down = is_colour ? header_.down : 1;
    plane.blocks_across = is_colour ? 1 : header_.across;
    plane.blocks_down = is_colour ? 1 : header_.down;
    plane.width = divided_up(header_.extent.width, across);
    plane.height = divided_up(header_.extent.height, down);
    const auto blocks = [](std::size_t first, std::size_t count, std::size_t per_sample, std::size_t all) {
        const std::size_t around = per_sample - 1;
        const std::size_t low = first / per_sample;
        const std::size_t high = (first + count - 1) / per_sample + around;
        return std::pair{(low - std::min(low, around)) / 8, std::min(high, all - 1) / 8 + 1};
    };
    std::tie(plane.first_column, plane.end_column) = blocks(window.left, window.width, across, plane.width);
    std::tie(plane.first_row, plane.end_row) = blocks(window.top, window.height, down, plane.height);
    plane.make_ring();
    end_unit_ = std::max(end_unit_, divided_up(plane.end_column, plane.blocks_across));
    end_unit_row_ = std::max(end_unit_row_, divided_up(plane.end_row, plane.blocks_down));
}

void BaselineJpeg::start(const Window &window) {
    end_unit_ = end_unit_row_ = 0;
    for (std::size_t i = 0; i < header_.components; ++i) {
        place(i, window);
    }
    units_across_ = divided_up(header_.extent.width, header_.across * 8);
    unit_rows_read_ = 0;
    units_to_restart_ = header_.restart_interval;
    waiting_ = {};
    waiting_count_ = 0;
    first_numbers_ = {};
    segments_.start(header_.coded, file_end_);
    bits_ = segments_.bits();
    next_row_ = window.top;
    margin_ = window.left % header_.across;
    first_pixel_ = window.left - margin_;
    row_pixels_ = divided_up(window.width + margin_, piece_pixels) * piece_pixels;
}

[[gnu::always_inline]] inline void BaselineJpeg::read_block(Bits &bits, std::size_t component,
                                                                     std::size_t row, std::size_t column) {
    const Tables &tables = *tables_of_[component];
    Plane &plane = planes_[component];
    std::uint32_t &first_number = first_numbers_[component];
    first_number += static_cast<std::uint32_t>(tables.dc.take(bits));
    if (first_number + largest_first_number > 2 * largest_first_number) {
        throw Unusual();
    }
    if (!plane.needs(row, column)) {
        tables.ac.skip(bits);
        return;
    }
    const std::uint16_t *const quantizers = header_.component[component].quantizers.data();
    std::uint8_t *const out = plane.row(row * 8) + (column - plane.first_column) * 8;
    std::int16_t *const numbers = waiting_[waiting_count_].numbers;
    if (tables.ac.take(bits, numbers) == 1) {
        flat_block(static_cast<std::int32_t>(first_number), quantizers[0], out, plane.stride);
        return;
    }
    numbers[0] = static_cast<std::int16_t>(first_number);
    finish_block(quantizers, out, plane.stride);
}

[[gnu::always_inline]] inline void BaselineJpeg::read_unit(Bits &bits, std::size_t unit) {
    for (std::size_t i = 0; i < header_.components; ++i) {
        const Plane &plane = planes_[i];
        for (std::size_t y = 0; y < plane.blocks_down; ++y) {
            for (std::size_t x = 0; x < plane.blocks_across; ++x) {
                read_block(bits, i, unit_rows_read_ * plane.blocks_down + y, unit * plane.blocks_across + x);
            }
        }
    }
    if (bits.bits_read() > segments_.bit_count()) {
        throw Unusual();
    }
}

void BaselineJpeg::read_unit_row() {
    const std::size_t row = unit_rows_read_;
    const std::size_t end = row + 1 == end_unit_row_ ? end_unit_ : units_across_;
    Bits bits = bits_;  // whose address nobody gets, so that it can live in registers
    for (std::size_t unit = 0; unit < end; ++unit) {
        if (header_.restart_interval != 0 && units_to_restart_-- == 0) {
            segments_.restart();
            bits = segments_.bits();
            first_numbers_ = {};
            units_to_restart_ = header_.restart_interval - 1;
        }
        read_unit(bits, unit);
    }
    bits_ = bits;
    finish_last_block();
    ++unit_rows_read_;
    for (std::size_t i = 1; i < header_.components && header_.across > 1; ++i) {
        planes_[i].repeat_edges(row);
    }
}

void BaselineJpeg::finish_block(const std::uint16_t *quantizers, std::uint8_t *out, std::size_t stride) {
    Waiting &block = waiting_[waiting_count_];
    block.quantizers = quantizers;
    block.out = out;
    block.stride = stride;
    if (++waiting_count_ == 2) {
        const auto made = [](const Waiting &w) { return Block{w.numbers, w.quantizers, w.out, w.stride}; };
        two_blocks(made(waiting_[0]), made(waiting_[1]));
        for (Waiting &done : waiting_) {
            std::memset(done.numbers, 0, sizeof done.numbers);
        }
        waiting_count_ = 0;
    }
}

void BaselineJpeg::finish_last_block() {
    if (waiting_count_ == 1) {
        const Waiting &last = waiting_[0];
        waiting_[1] = last;
        finish_block(last.quantizers, last.out, last.stride);
    }
}

// The row of colours next to that of pixel row y, on the side where the pixels are.
std::size_t BaselineJpeg::far_colour_row(std::size_t y) const {
    const std::size_t near = y / header_.down;
    if (header_.down == 1) {
        return near;
    }
    const std::size_t before = near - std::min<std::size_t>(near, 1);
    return y % 2 == 0 ? before : std::min(near + 1, planes_[1].height - 1);
}

void BaselineJpeg::read_row(std::uint8_t *pixels) {
    const std::size_t y = next_row_++;
    const std::size_t near = y / header_.down;
    const std::size_t far = header_.components == 1 ? y : far_colour_row(y);
    while (unit_rows_read_ * header_.down * 8 <= y || unit_rows_read_ * 8 <= far) {
        read_unit_row();
    }
    const auto at = [&](std::size_t component, std::size_t row) {
        Plane &plane = planes_[component];
        const std::size_t across = component == 0 ? 1 : header_.across;
        return plane.row(row) + (first_pixel_ / across - plane.first_column * 8);
    };
    SampleRows rows{at(0, y), {}, {}};
    if (header_.components == 1) {
        return to_pixels(Sampling::grey, rows, row_pixels_, pixels);
    }
    rows = {rows.light, {at(1, near), at(1, far)}, {at(2, near), at(2, far)}};
    const Sampling sampling = header_.across == 1 ? Sampling::each : header_.down == 1 ? Sampling::two : Sampling::four;
    to_pixels(sampling, rows, row_pixels_, pixels);
}

std::size_t BaselineJpeg::kept_bytes() const {
    std::size_t bytes = segments_.kept_bytes();
    for (const Plane &plane : planes_) {
        bytes += plane.samples.capacity();
    }
    return bytes;
}

}  // namespace unstarve
