#include "jpeg_colour.h"

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace unstarve {
namespace {

// YCbCr → RGB, times 1 << 16, less the whole numbers in them: so they fit into 16 bits with a sign.
constexpr int red_by_red = 26345;      // 1.402 - 1
constexpr int blue_by_blue = -14942;   // 1.772 - 2
constexpr int green_by_blue = -22554;  // -0.34414
constexpr int green_by_red = 18734;    // -0.71414 + 1
constexpr int half = 1 << 15;

std::uint8_t level(int value) { return static_cast<std::uint8_t>(std::clamp(value, 0, 255)); }

// The colour of pixel x: three parts of the nearest sample and one of the next, along each direction.
int colour_at(Sampling sampling, const std::uint8_t *const *rows, std::size_t x) {
    if (sampling == Sampling::each) {
        return rows[0][x];
    }
    const auto at = static_cast<std::ptrdiff_t>(x / 2);
    const std::ptrdiff_t next = x % 2 == 0 ? at - 1 : at + 1;
    if (sampling == Sampling::two) {
        return (3 * rows[0][at] + rows[0][next] + (x % 2 == 0 ? 1 : 2)) >> 2;
    }
    const int here = 3 * rows[0][at] + rows[1][at];
    const int there = 3 * rows[0][next] + rows[1][next];
    return (3 * here + there + (x % 2 == 0 ? 8 : 7)) >> 4;
}

#if defined(__x86_64__)

#define UNSTARVE_AVX2 [[gnu::target("avx2"), gnu::always_inline]] inline

UNSTARVE_AVX2 __m256i words_at(const std::uint8_t *bytes) {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i *>(bytes)));
}
UNSTARVE_AVX2 __m256i three_and_one(__m256i three, __m256i one) {
    return _mm256_add_epi16(_mm256_add_epi16(_mm256_slli_epi16(three, 1), three), one);
}

// Blue or red of 16 even and 16 odd pixels, or of 16 and 16 pixels; 0 is neither this nor that.
struct Colours {
    __m256i even;
    __m256i odd;
};

template <Sampling sampling>
UNSTARVE_AVX2 __m256i blended_down(const std::uint8_t *const *rows, std::ptrdiff_t at) {
    const __m256i near = words_at(rows[0] + at);
    if constexpr (sampling == Sampling::four) {
        return three_and_one(near, words_at(rows[1] + at));
    }
    return near;
}

template <Sampling sampling>
UNSTARVE_AVX2 Colours colours_at(const std::uint8_t *const *rows, std::size_t x) {
    const __m256i middle = _mm256_set1_epi16(128);
    if constexpr (sampling == Sampling::each) {
        return {_mm256_sub_epi16(words_at(rows[0] + x), middle), _mm256_sub_epi16(words_at(rows[0] + x + 16), middle)};
    } else {
        constexpr int shift = sampling == Sampling::four ? 4 : 2;
        const auto at = static_cast<std::ptrdiff_t>(x / 2);
        const __m256i here = blended_down<sampling>(rows, at);
        const __m256i before = three_and_one(here, blended_down<sampling>(rows, at - 1));
        const __m256i behind = three_and_one(here, blended_down<sampling>(rows, at + 1));
        const __m256i even = _mm256_add_epi16(before, _mm256_set1_epi16(sampling == Sampling::four ? 8 : 1));
        const __m256i odd = _mm256_add_epi16(behind, _mm256_set1_epi16(sampling == Sampling::four ? 7 : 2));
        return {_mm256_sub_epi16(_mm256_srli_epi16(even, shift), middle),
                _mm256_sub_epi16(_mm256_srli_epi16(odd, shift), middle)};
    }
}

// value * by / 65536, rounded: for numbers of less than 15 bits.
UNSTARVE_AVX2 __m256i part_of(__m256i value, int by) {
    const __m256i twice = _mm256_mulhi_epi16(_mm256_add_epi16(value, value), _mm256_set1_epi16(static_cast<short>(by)));
    return _mm256_srai_epi16(_mm256_add_epi16(twice, _mm256_set1_epi16(1)), 1);
}

UNSTARVE_AVX2 __m256i green_part(__m256i blue, __m256i red) {
    const __m256i by = _mm256_set1_epi32((green_by_blue & 0xFFFF) | green_by_red << 16);
    const __m256i rounding = _mm256_set1_epi32(half);
    const __m256i low = _mm256_madd_epi16(_mm256_unpacklo_epi16(blue, red), by);
    const __m256i high = _mm256_madd_epi16(_mm256_unpackhi_epi16(blue, red), by);
    return _mm256_packs_epi32(_mm256_srai_epi32(_mm256_add_epi32(low, rounding), 16),
                              _mm256_srai_epi32(_mm256_add_epi32(high, rounding), 16));
}

// 16 pixels: of each half of a register eight, the first four of them in `first`, the last in `last`.
struct Sixteen {
    __m256i first;
    __m256i last;
};

UNSTARVE_AVX2 Sixteen pixels_of(__m256i light, __m256i blue, __m256i red) {
    const __m256i r = _mm256_add_epi16(_mm256_add_epi16(light, red), part_of(red, red_by_red));
    const __m256i g = _mm256_add_epi16(_mm256_sub_epi16(light, red), green_part(blue, red));
    const __m256i b =
        _mm256_add_epi16(_mm256_add_epi16(light, _mm256_add_epi16(blue, blue)), part_of(blue, blue_by_blue));
    const __m256i red_blue = _mm256_packus_epi16(r, b);
    const __m256i green_none = _mm256_packus_epi16(g, _mm256_set1_epi16(255));
    const __m256i red_green = _mm256_unpacklo_epi8(red_blue, green_none);
    const __m256i blue_none = _mm256_unpackhi_epi8(red_blue, green_none);
    return {_mm256_unpacklo_epi16(red_green, blue_none), _mm256_unpackhi_epi16(red_green, blue_none)};
}

// Lower halves, then upper halves: 8 pixels and, 8 pixels further on, 8 more.
template <std::size_t apart>
UNSTARVE_AVX2 void store(__m256i first, __m256i last, std::uint8_t *out) {
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(out), _mm256_permute2x128_si256(first, last, 0x20));
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(out + apart * 4), _mm256_permute2x128_si256(first, last, 0x31));
}

template <Sampling sampling>
[[gnu::target("avx2")]] void colours_avx2(const SampleRows &rows, std::size_t pixels, std::uint8_t *out) {
    for (std::size_t x = 0; x < pixels; x += piece_pixels, out += piece_pixels * 4) {
        const Colours blue = colours_at<sampling>(rows.blue, x);
        const Colours red = colours_at<sampling>(rows.red, x);
        if constexpr (sampling == Sampling::each) {
            const Sixteen one = pixels_of(words_at(rows.light + x), blue.even, red.even);
            const Sixteen other = pixels_of(words_at(rows.light + x + 16), blue.odd, red.odd);
            store<8>(one.first, one.last, out);
            store<8>(other.first, other.last, out + 64);
        } else {
            const __m256i light = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(rows.light + x));
            const Sixteen even = pixels_of(_mm256_and_si256(light, _mm256_set1_epi16(255)), blue.even, red.even);
            const Sixteen odd = pixels_of(_mm256_srli_epi16(light, 8), blue.odd, red.odd);
            store<16>(_mm256_unpacklo_epi32(even.first, odd.first), _mm256_unpackhi_epi32(even.first, odd.first), out);
            store<16>(_mm256_unpacklo_epi32(even.last, odd.last), _mm256_unpackhi_epi32(even.last, odd.last), out + 32);
        }
    }
}

[[gnu::target("avx2")]] void grey_avx2(const SampleRows &rows, std::size_t pixels, std::uint8_t *out) {
    const __m256i three_times = _mm256_set1_epi32(0x010101);
    for (std::size_t x = 0; x < pixels; x += 8) {
        const __m128i light = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(rows.light + x));
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(out + x * 4),
                            _mm256_mullo_epi32(_mm256_cvtepu8_epi32(light), three_times));
    }
}

void to_pixels_avx2(Sampling sampling, const SampleRows &rows, std::size_t pixels, std::uint8_t *out) {
    switch (sampling) {
        case Sampling::grey: return grey_avx2(rows, pixels, out);
        case Sampling::each: return colours_avx2<Sampling::each>(rows, pixels, out);
        case Sampling::two: return colours_avx2<Sampling::two>(rows, pixels, out);
        case Sampling::four: return colours_avx2<Sampling::four>(rows, pixels, out);
    }
}

#undef UNSTARVE_AVX2

#endif

}  // namespace

void to_pixels_plain(Sampling sampling, const SampleRows &rows, std::size_t pixels, std::uint8_t *out) {
    for (std::size_t x = 0; x < pixels; ++x, out += 4) {
        const int light = rows.light[x];
        const bool is_grey = sampling == Sampling::grey;
        const int blue = is_grey ? 0 : colour_at(sampling, rows.blue, x) - 128;
        const int red = is_grey ? 0 : colour_at(sampling, rows.red, x) - 128;
        out[0] = level(light + red + ((red * red_by_red + half) >> 16));
        out[1] = level(light - red + ((blue * green_by_blue + red * green_by_red + half) >> 16));
        out[2] = level(light + 2 * blue + ((blue * blue_by_blue + half) >> 16));
        out[3] = 255;
    }
}

ToPixels best_to_pixels() {
#if defined(__x86_64__)
    __builtin_cpu_init();  // this may run before the library that would do it
    if (__builtin_cpu_supports("avx2")) {
        return to_pixels_avx2;
    }
#endif
    return to_pixels_plain;
}

}  // namespace unstarve
