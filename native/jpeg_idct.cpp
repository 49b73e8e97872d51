#include "jpeg_idct.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace unstarve {
namespace {

// Cosines and sums of them, times 1 << 13, by the names that the method of Loeffler, Ligtenberg and Moschytz has for
// them in libjpeg.
constexpr int scale_bits = 13;
constexpr int f0298 = 2446, f0390 = 3196, f0541 = 4433, f0765 = 6270, f0899 = 7373, f1175 = 9633, f1501 = 12299,
              f1847 = 15137, f1961 = 16069, f2053 = 16819, f2562 = 20995, f3072 = 25172;

// Numbers after the first pass have two bits behind the point; the second takes them and a factor of 8 away.
constexpr int first_shift = scale_bits - 2;
constexpr int second_shift = scale_bits + 2 + 3;

std::int16_t wrapped(std::int32_t number) { return static_cast<std::int16_t>(number); }
std::int16_t saturated(std::int32_t number) {
    return static_cast<std::int16_t>(std::clamp(number, -32768, 32767));
}

// a * x + b * y. Sums wrap around, which only numbers of a damaged file make them do.
std::uint32_t pair(std::int32_t a, std::int32_t x, std::int32_t b, std::int32_t y) {
    return static_cast<std::uint32_t>(a * x) + static_cast<std::uint32_t>(b * y);
}

// One line of eight numbers, `step` apart, in place.
void line(std::int16_t *at, std::size_t step, int shift) {
    const auto in = [&](std::size_t i) { return std::int32_t{at[i * step]}; };
    const std::uint32_t half = 1u << (shift - 1);
    const std::uint32_t sum = (static_cast<std::uint32_t>(wrapped(in(0) + in(4))) << scale_bits) + half;
    const std::uint32_t difference = (static_cast<std::uint32_t>(wrapped(in(0) - in(4))) << scale_bits) + half;
    const std::uint32_t low = pair(f0541, in(2), f0541 - f1847, in(6));
    const std::uint32_t high = pair(f0541 + f0765, in(2), f0541, in(6));
    const std::uint32_t even[4] = {sum + high, difference + low, difference - low, sum - high};
    const std::int32_t seven_three = wrapped(in(7) + in(3));
    const std::int32_t five_one = wrapped(in(5) + in(1));
    const std::uint32_t z3 = pair(f1175 - f1961, seven_three, f1175, five_one);
    const std::uint32_t z4 = pair(f1175, seven_three, f1175 - f0390, five_one);
    const std::uint32_t odd[4] = {pair(-f0899, in(7), f1501 - f0899, in(1)) + z4,
                                  pair(-f2562, in(5), f3072 - f2562, in(3)) + z3,
                                  pair(f2053 - f2562, in(5), -f2562, in(3)) + z4,
                                  pair(f0298 - f0899, in(7), -f0899, in(1)) + z3};
    for (std::size_t i = 0; i < 4; ++i) {
        at[i * step] = saturated(static_cast<std::int32_t>(even[i] + odd[i]) >> shift);
        at[(7 - i) * step] = saturated(static_cast<std::int32_t>(even[i] - odd[i]) >> shift);
    }
}

// A block of which only the first row is there takes a shorter way in libjpeg-turbo: the first pass is a shift, which
// wraps around where the long one saturates. Only numbers of a damaged file are so large.
void spread(std::int16_t *numbers) {
    for (std::size_t x = 0; x < 8; ++x) {
        const std::int16_t shifted = wrapped(numbers[x] * 4);
        for (std::size_t y = 0; y < 8; ++y) {
            numbers[y * 8 + x] = shifted;
        }
    }
}

void block_plain(const Block &block) {
    std::int16_t numbers[64];
    for (std::size_t i = 0; i < 64; ++i) {
        numbers[i] = wrapped(block.numbers[i] * block.quantizers[i]);
    }
    if (std::all_of(block.numbers + 8, block.numbers + 64, [](std::int16_t number) { return number == 0; })) {
        spread(numbers);
    } else {
        for (std::size_t x = 0; x < 8; ++x) {
            line(numbers + x, 8, first_shift);
        }
    }
    for (std::size_t y = 0; y < 8; ++y) {
        line(numbers + y * 8, 1, second_shift);
        for (std::size_t x = 0; x < 8; ++x) {
            block.out[y * block.stride + x] =
                static_cast<std::uint8_t>(std::clamp<int>(numbers[y * 8 + x], -128, 127) + 128);
        }
    }
}

#if defined(__x86_64__)

#define UNSTARVE_AVX2 [[gnu::target("avx2"), gnu::always_inline]] inline

// Eight numbers of 32 bits for each of two blocks: the lower four of a line, and the upper.
struct Wide {
    __m256i low;
    __m256i high;
};

UNSTARVE_AVX2 Wide operator+(const Wide &a, const Wide &b) {
    return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
UNSTARVE_AVX2 Wide operator-(const Wide &a, const Wide &b) {
    return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}
UNSTARVE_AVX2 Wide mixed(__m256i x, __m256i y) { return {_mm256_unpacklo_epi16(x, y), _mm256_unpackhi_epi16(x, y)}; }
UNSTARVE_AVX2 Wide pairs(const Wide &xy, int a, int b) {
    const __m256i by = _mm256_set1_epi32((a & 0xFFFF) | static_cast<int>(static_cast<unsigned>(b) << 16));
    return {_mm256_madd_epi16(xy.low, by), _mm256_madd_epi16(xy.high, by)};
}
UNSTARVE_AVX2 Wide scaled(__m256i x, int half) {
    const Wide high = mixed(_mm256_setzero_si256(), x);
    return Wide{_mm256_srai_epi32(high.low, 16 - scale_bits), _mm256_srai_epi32(high.high, 16 - scale_bits)} +
           Wide{_mm256_set1_epi32(half), _mm256_set1_epi32(half)};
}
template <int shift>
UNSTARVE_AVX2 __m256i packed(const Wide &x) {
    return _mm256_packs_epi32(_mm256_srai_epi32(x.low, shift), _mm256_srai_epi32(x.high, shift));
}

// Eight lines at once, of each of two blocks: what `line` does.
template <int shift>
UNSTARVE_AVX2 void lines(__m256i (&in)[8]) {
    constexpr int half = 1 << (shift - 1);
    const Wide two_six = mixed(in[2], in[6]);
    const Wide low = pairs(two_six, f0541, f0541 - f1847);
    const Wide high = pairs(two_six, f0541 + f0765, f0541);
    const Wide sum = scaled(_mm256_add_epi16(in[0], in[4]), half);
    const Wide difference = scaled(_mm256_sub_epi16(in[0], in[4]), half);
    const Wide even[4] = {sum + high, difference + low, difference - low, sum - high};
    const Wide z = mixed(_mm256_add_epi16(in[7], in[3]), _mm256_add_epi16(in[5], in[1]));
    const Wide z3 = pairs(z, f1175 - f1961, f1175);
    const Wide z4 = pairs(z, f1175, f1175 - f0390);
    const Wide seven_one = mixed(in[7], in[1]);
    const Wide five_three = mixed(in[5], in[3]);
    const Wide odd[4] = {pairs(seven_one, -f0899, f1501 - f0899) + z4, pairs(five_three, -f2562, f3072 - f2562) + z3,
                         pairs(five_three, f2053 - f2562, -f2562) + z4, pairs(seven_one, f0298 - f0899, -f0899) + z3};
    for (int i = 0; i < 4; ++i) {
        in[i] = packed<shift>(even[i] + odd[i]);
        in[7 - i] = packed<shift>(even[i] - odd[i]);
    }
}

UNSTARVE_AVX2 void turned(__m256i (&in)[8]) {
    __m256i a[8];
    __m256i b[8];
    for (int i = 0; i < 4; ++i) {
        a[i * 2] = _mm256_unpacklo_epi16(in[i], in[i + 4]);
        a[i * 2 + 1] = _mm256_unpackhi_epi16(in[i], in[i + 4]);
    }
    for (int i = 0; i < 4; ++i) {
        b[i * 2] = _mm256_unpacklo_epi16(a[i], a[i + 4]);
        b[i * 2 + 1] = _mm256_unpackhi_epi16(a[i], a[i + 4]);
    }
    for (int i = 0; i < 4; ++i) {
        in[i * 2] = _mm256_unpacklo_epi16(b[i], b[i + 4]);
        in[i * 2 + 1] = _mm256_unpackhi_epi16(b[i], b[i + 4]);
    }
}

UNSTARVE_AVX2 __m256i both(const void *one, const void *other) {
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128(static_cast<const __m128i *>(one))),
        _mm_loadu_si128(static_cast<const __m128i *>(other)), 1);
}

// What `spread` does, for those of the two blocks that have nothing below their first row.
UNSTARVE_AVX2 void spread(__m256i (&in)[8], __m256i first, __m256i below) {
    const bool one = _mm_testz_si128(_mm256_castsi256_si128(below), _mm256_castsi256_si128(below)) != 0;
    const __m128i upper = _mm256_extracti128_si256(below, 1);
    const bool other = _mm_testz_si128(upper, upper) != 0;
    if (!one && !other) {
        return;
    }
    const __m256i which = _mm256_set_epi64x(other ? -1 : 0, other ? -1 : 0, one ? -1 : 0, one ? -1 : 0);
    const __m256i shifted = _mm256_slli_epi16(first, 2);
    for (__m256i &line : in) {
        line = _mm256_blendv_epi8(line, shifted, which);
    }
}

// Two lines of samples of one block.
UNSTARVE_AVX2 void store_two(__m128i samples, std::uint8_t *out, std::size_t stride) {
    _mm_storel_epi64(reinterpret_cast<__m128i *>(out), samples);
    _mm_storel_epi64(reinterpret_cast<__m128i *>(out + stride), _mm_unpackhi_epi64(samples, samples));
}

[[gnu::target("avx2")]] void two_blocks_avx2(const Block &one, const Block &other) {
    __m256i in[8];
    __m256i below = _mm256_setzero_si256();  // whatever is not in the first row
    for (int i = 0; i < 8; ++i) {
        const __m256i numbers = both(one.numbers + i * 8, other.numbers + i * 8);
        in[i] = _mm256_mullo_epi16(numbers, both(one.quantizers + i * 8, other.quantizers + i * 8));
        below = i == 0 ? below : _mm256_or_si256(below, numbers);
    }
    const __m256i first = in[0];
    lines<first_shift>(in);
    spread(in, first, below);
    turned(in);
    lines<second_shift>(in);
    // Columns of 16 bits → lines of bytes.
    __m256i a[4];
    for (int i = 0; i < 4; ++i) {
        a[i] = _mm256_packs_epi16(in[i], in[i + 4]);
    }
    const __m256i left01 = _mm256_unpacklo_epi8(a[0], a[1]);
    const __m256i left23 = _mm256_unpacklo_epi8(a[2], a[3]);
    const __m256i right01 = _mm256_unpackhi_epi8(a[0], a[1]);
    const __m256i right23 = _mm256_unpackhi_epi8(a[2], a[3]);
    const __m256i left[2] = {_mm256_unpacklo_epi16(left01, left23), _mm256_unpackhi_epi16(left01, left23)};
    const __m256i right[2] = {_mm256_unpacklo_epi16(right01, right23), _mm256_unpackhi_epi16(right01, right23)};
    const __m256i middle = _mm256_set1_epi8(static_cast<char>(-128));
    for (std::size_t i = 0; i < 4; ++i) {
        const __m256i two_lines = i % 2 == 0 ? _mm256_unpacklo_epi32(left[i / 2], right[i / 2])
                                             : _mm256_unpackhi_epi32(left[i / 2], right[i / 2]);
        const __m256i samples = _mm256_add_epi8(two_lines, middle);
        store_two(_mm256_castsi256_si128(samples), one.out + i * 2 * one.stride, one.stride);
        store_two(_mm256_extracti128_si256(samples, 1), other.out + i * 2 * other.stride, other.stride);
    }
}

#undef UNSTARVE_AVX2

#endif

}  // namespace

void two_blocks_plain(const Block &one, const Block &other) {
    block_plain(one);
    block_plain(other);
}

TwoBlocks best_two_blocks() {
#if defined(__x86_64__)
    __builtin_cpu_init();  // this may run before the library that would do it
    if (__builtin_cpu_supports("avx2")) {
        return two_blocks_avx2;
    }
#endif
    return two_blocks_plain;
}

void flat_block(std::int32_t number, std::uint16_t quantizer, std::uint8_t *out, std::size_t stride) {
    const std::int32_t sample = wrapped(wrapped(number) * quantizer);
    const std::int32_t second = (wrapped(sample * 4) + 16) >> 5;  // what is left of both passes
    const int level = std::clamp(second, -128, 127) + 128;
    for (std::size_t y = 0; y < 8; ++y) {
        std::memset(out + y * stride, level, 8);
    }
}

}  // namespace unstarve
