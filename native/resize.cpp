#include "resize.h"

#include <cstring>

#if defined(__x86_64__)
#define UNSTARVE_AVX2 __attribute__((target("avx2")))
#endif

namespace unstarve {
namespace {

// Lines are computed in pieces of this many bytes; the memory of a row is a multiple of it.
constexpr std::size_t piece_bytes = 32;
constexpr std::int32_t half = 1 << (weight_bits - 1);

// The compiler makes of these whatever the processor has.
using Bytes4 = std::uint8_t __attribute__((vector_size(4)));
using Bytes8 = std::uint8_t __attribute__((vector_size(8)));
using Ints4 = std::int32_t __attribute__((vector_size(16)));
using Ints8 = std::int32_t __attribute__((vector_size(32)));

template <typename Vector, typename Value>
[[gnu::always_inline]] inline void load(Vector &vector, const Value *from) {
    std::memcpy(&vector, from, sizeof vector);
}

// Two pixels at a time: `values` holds an even number of weights for each position, each of them four times.
[[gnu::always_inline]] inline void along_x(const std::uint8_t *pixels, const Weights &weights,
                                           const std::int32_t *values, std::size_t taps, bool flip,
                                           std::uint8_t *out) {
    const std::size_t width = weights.first.size();
    for (std::size_t x = 0; x < width; ++x) {
        const std::uint8_t *const from = pixels + weights.first[x] * 4;
        const std::int32_t *const weight = values + x * taps * 4;
        const std::size_t count = weights.count[x];
        Ints8 sum = {half, half, half, half, 0, 0, 0, 0};
        for (std::size_t i = 0; i < count; i += 2) {
            Bytes8 two;
            Ints8 by;
            load(two, from + i * 4);
            load(by, weight + i * 4);
            sum += __builtin_convertvector(two, Ints8) * by;
        }
        Ints4 low;
        Ints4 high;
        std::memcpy(&low, &sum, sizeof low);
        std::memcpy(&high, reinterpret_cast<const char *>(&sum) + sizeof low, sizeof high);
        // Weights are positive and sum up to 1: nothing can leave 0–255.
        const Bytes4 pixel = __builtin_convertvector((low + high) >> weight_bits, Bytes4);
        std::memcpy(out + (flip ? width - 1 - x : x) * 4, &pixel, sizeof pixel);
    }
}

[[gnu::always_inline]] inline void along_y(const std::uint8_t *const *rows, const std::int32_t *weights,
                                           std::size_t count, std::size_t row_bytes, std::uint8_t *out) {
    for (std::size_t at = 0; at < row_bytes; at += piece_bytes) {
        Ints8 sums[4];
        for (Ints8 &sum : sums) {
            sum = Ints8{} + half;
        }
        for (std::size_t i = 0; i < count; ++i) {
            for (std::size_t part = 0; part < 4; ++part) {
                Bytes8 eight;
                load(eight, rows[i] + at + part * 8);
                sums[part] += __builtin_convertvector(eight, Ints8) * weights[i];
            }
        }
        for (std::size_t part = 0; part < 4; ++part) {
            const Bytes8 eight = __builtin_convertvector(sums[part] >> weight_bits, Bytes8);
            std::memcpy(out + at + part * 8, &eight, sizeof eight);
        }
    }
}

void along_x_plain(const std::uint8_t *pixels, const Weights &weights, const std::int32_t *values,
                   std::size_t taps, bool flip, std::uint8_t *out) {
    along_x(pixels, weights, values, taps, flip, out);
}

void along_y_plain(const std::uint8_t *const *rows, const std::int32_t *weights, std::size_t count,
                   std::size_t row_bytes, std::uint8_t *out) {
    along_y(rows, weights, count, row_bytes, out);
}

#ifdef UNSTARVE_AVX2
UNSTARVE_AVX2 void along_x_avx2(const std::uint8_t *pixels, const Weights &weights, const std::int32_t *values,
                                std::size_t taps, bool flip, std::uint8_t *out) {
    along_x(pixels, weights, values, taps, flip, out);
}

UNSTARVE_AVX2 void along_y_avx2(const std::uint8_t *const *rows, const std::int32_t *weights, std::size_t count,
                                std::size_t row_bytes, std::uint8_t *out) {
    along_y(rows, weights, count, row_bytes, out);
}

const bool has_avx2 = (__builtin_cpu_init(), __builtin_cpu_supports("avx2") != 0);
const auto resize_along_x = has_avx2 ? along_x_avx2 : along_x_plain;
const auto resize_along_y = has_avx2 ? along_y_avx2 : along_y_plain;
#else
const auto resize_along_x = along_x_plain;
const auto resize_along_y = along_y_plain;
#endif

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
    resize_along_x(pixels, across_, across_values_.data(), across_taps_, flip_, ring_row(rows_in_));
    ++rows_in_;
    while (rows_out_ < target_.height && down_.first[rows_out_] + down_.count[rows_out_] <= rows_in_) {
        const std::size_t count = down_.count[rows_out_];
        for (std::size_t i = 0; i < count; ++i) {
            window_[i] = ring_row(down_.first[rows_out_] + i);
        }
        resize_along_y(window_.data(), down_.values.data() + rows_out_ * down_.taps, count, row_bytes_, line_.data());
        finish_row(line_.data(), rows_out_, target_);
        ++rows_out_;
    }
}

}  // namespace unstarve
