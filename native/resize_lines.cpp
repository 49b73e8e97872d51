#include "resize_lines.h"

#include <cstring>

#include "weights.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace unstarve {
namespace {

// Weights are positive and sum up to 1: rounded sums cannot leave 0–255.
constexpr std::int32_t half = 1 << (weight_bits - 1);

void along_x_plain(const std::uint8_t *const *rows, const std::vector<std::size_t> &first,
                   const std::int32_t *weights, std::size_t pairs, bool flip, std::uint8_t *const *out) {
    const std::size_t width = first.size();
    for (std::size_t row = 0; row < rows_at_once; ++row) {
        for (std::size_t x = 0; x < width; ++x) {
            const std::uint8_t *const from = rows[row] + first[x] * 4;
            const std::int32_t *const by = weights + x * pairs * 8;
            std::int32_t sums[4] = {half, half, half, half};
            for (std::size_t i = 0; i < pairs * 8; i += 4) {
                for (std::size_t byte = 0; byte < 4; ++byte) {
                    sums[byte] += from[i + byte] * by[i + byte];
                }
            }
            std::uint8_t *const to = out[row] + (flip ? width - 1 - x : x) * 4;
            for (std::size_t byte = 0; byte < 4; ++byte) {
                to[byte] = static_cast<std::uint8_t>(sums[byte] >> weight_bits);
            }
        }
    }
}

void along_y_plain(const std::uint8_t *const *rows, const std::int32_t *weights, std::size_t count,
                   std::size_t row_bytes, std::uint8_t *out) {
    for (std::size_t at = 0; at < row_bytes; at += piece_bytes) {
        std::int32_t sums[piece_bytes];
        for (std::int32_t &sum : sums) {
            sum = half;
        }
        for (std::size_t i = 0; i < count; ++i) {
            for (std::size_t byte = 0; byte < piece_bytes; ++byte) {
                sums[byte] += rows[i][at + byte] * weights[i];
            }
        }
        for (std::size_t byte = 0; byte < piece_bytes; ++byte) {
            out[at + byte] = static_cast<std::uint8_t>(sums[byte] >> weight_bits);
        }
    }
}

void widen_plain(const std::uint8_t *pixels, std::size_t count, std::uint8_t *out) {
    for (std::size_t i = 0; i < count; ++i) {
        std::memcpy(out + i * 4, pixels + i * 3, 3);
    }
}

#if defined(__x86_64__)

// Eight bytes as eight numbers of 32 bits.
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i eight_at(const std::uint8_t *bytes) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(bytes)));
}

// The sums of two pixels for each of two rows → one rounded pixel for each row.
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i rounded(__m256i one, __m256i other) {
    const __m256i evens = _mm256_permute2x128_si256(one, other, 0x20);
    const __m256i odds = _mm256_permute2x128_si256(one, other, 0x31);
    const __m256i sums = _mm256_add_epi32(_mm256_add_epi32(evens, odds), _mm256_set1_epi32(half));
    return _mm256_srli_epi32(sums, weight_bits);
}

// `fixed_pairs`, where not 0, is the number of pairs known to the compiler.
template <std::size_t fixed_pairs>
[[gnu::target("avx2")]] void pairs_along_x(const std::uint8_t *const *rows, const std::vector<std::size_t> &first,
                                           const std::int32_t *weights, std::size_t pairs, bool flip,
                                           std::uint8_t *const *out) {
    const std::size_t reach = (fixed_pairs != 0 ? fixed_pairs : pairs) * 8;
    const std::size_t width = first.size();
    std::ptrdiff_t to = flip ? static_cast<std::ptrdiff_t>(width - 1) * 4 : 0;
    for (std::size_t x = 0; x < width; ++x, to += flip ? -4 : 4, weights += reach) {
        const std::size_t from = first[x] * 4;
        __m256i sums[rows_at_once] = {};
        for (std::size_t i = 0; i < reach; i += 8) {
            const __m256i by = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(weights + i));
            for (std::size_t row = 0; row < rows_at_once; ++row) {
                sums[row] = _mm256_add_epi32(sums[row], _mm256_mullo_epi32(eight_at(rows[row] + from + i), by));
            }
        }
        // Pixels of rows 0, 2 in the lower half and of 1, 3 in the upper.
        const __m256i words = _mm256_packus_epi32(rounded(sums[0], sums[1]), rounded(sums[2], sums[3]));
        const __m256i bytes = _mm256_packus_epi16(words, words);
        const __m128i lower = _mm256_castsi256_si128(bytes);
        const __m128i upper = _mm256_extracti128_si256(bytes, 1);
        const std::int32_t pixels[rows_at_once] = {_mm_cvtsi128_si32(lower), _mm_cvtsi128_si32(upper),
                                                   _mm_extract_epi32(lower, 1), _mm_extract_epi32(upper, 1)};
        for (std::size_t row = 0; row < rows_at_once; ++row) {
            std::memcpy(out[row] + to, &pixels[row], 4);
        }
    }
}

void along_x_avx2(const std::uint8_t *const *rows, const std::vector<std::size_t> &first,
                  const std::int32_t *weights, std::size_t pairs, bool flip, std::uint8_t *const *out) {
    switch (pairs) {
        case 1: return pairs_along_x<1>(rows, first, weights, pairs, flip, out);
        case 2: return pairs_along_x<2>(rows, first, weights, pairs, flip, out);
        case 3: return pairs_along_x<3>(rows, first, weights, pairs, flip, out);
        default: return pairs_along_x<0>(rows, first, weights, pairs, flip, out);
    }
}

[[gnu::target("avx2")]] void along_y_avx2(const std::uint8_t *const *rows, const std::int32_t *weights,
                                          std::size_t count, std::size_t row_bytes, std::uint8_t *out) {
    // Packing works on halves of a register: this puts what it made back in order.
    const __m256i in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (std::size_t at = 0; at < row_bytes; at += piece_bytes) {
        __m256i sums[4];
        for (__m256i &sum : sums) {
            sum = _mm256_set1_epi32(half);
        }
        for (std::size_t i = 0; i < count; ++i) {
            const __m256i by = _mm256_set1_epi32(weights[i]);
            for (std::size_t part = 0; part < 4; ++part) {
                sums[part] =
                    _mm256_add_epi32(sums[part], _mm256_mullo_epi32(eight_at(rows[i] + at + part * 8), by));
            }
        }
        for (__m256i &sum : sums) {
            sum = _mm256_srli_epi32(sum, weight_bits);
        }
        const __m256i words = _mm256_packus_epi32(sums[0], sums[1]);
        const __m256i more_words = _mm256_packus_epi32(sums[2], sums[3]);
        const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(words, more_words), in_order);
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(out + at), bytes);
    }
}

// Four pixels at a time, as long as the 16 bytes that are read for them are all there.
[[gnu::target("avx2")]] void widen_avx2(const std::uint8_t *pixels, std::size_t count, std::uint8_t *out) {
    const __m128i apart = _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
    std::size_t i = 0;
    for (; i + 6 <= count; i += 4) {
        const __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i *>(pixels + i * 3));
        _mm_storeu_si128(reinterpret_cast<__m128i *>(out + i * 4), _mm_shuffle_epi8(four, apart));
    }
    widen_plain(pixels + i * 3, count - i, out + i * 4);
}

#endif

}  // namespace

LineResizer plain_line_resizer() { return {along_x_plain, along_y_plain, widen_plain}; }

LineResizer best_line_resizer() {
#if defined(__x86_64__)
    __builtin_cpu_init();  // this may run before the library that would do it
    if (__builtin_cpu_supports("avx2")) {
        return {along_x_avx2, along_y_avx2, widen_avx2};
    }
#endif
    return plain_line_resizer();
}

}  // namespace unstarve
