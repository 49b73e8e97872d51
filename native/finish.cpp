#include "finish.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace unstarve {
namespace {

template <typename Item, typename Lookup>
void write_row(const std::uint8_t *pixels, std::size_t y, const Target &target, Lookup lookup) {
    // Steps in items; constants where they can be, which halves the time.
    const auto write = [&](Item *red, Item *green, Item *blue, auto step) {
        for (std::size_t x = 0; x < target.width; ++x) {
            red[x * step] = lookup(0, pixels[x * 4]);
            green[x * step] = lookup(1, pixels[x * 4 + 1]);
            blue[x * step] = lookup(2, pixels[x * 4 + 2]);
        }
    };
    auto *const items = reinterpret_cast<Item *>(target.data);
    if (target.channels_last) {
        Item *const row = items + y * target.width * 3;
        write(row, row + 1, row + 2, std::integral_constant<std::size_t, 3>());
    } else {
        const std::size_t plane = target.height * target.width;
        Item *const row = items + y * target.width;
        write(row, row + plane, row + 2 * plane, std::integral_constant<std::size_t, 1>());
    }
}

template <typename Item>
void look_up_row(const std::uint8_t *pixels, std::size_t y, const Target &target) {
    const auto *const table = reinterpret_cast<const Item *>(target.table);
    write_row<Item>(pixels, y, target,
                    [table](std::size_t channel, std::uint8_t value) { return table[channel * 256 + value]; });
}

void copy_row(const std::uint8_t *pixels, std::size_t y, const Target &target) {
    write_row<std::uint8_t>(pixels, y, target, [](std::size_t, std::uint8_t value) { return value; });
}

#if defined(__x86_64__)

// Eight pixels → eight bytes of red and eight of green, and eight of blue.
struct Channels {
    __m128i red_green;
    __m128i blue;
};

[[gnu::target("avx2"), gnu::always_inline]] inline Channels channels_of(const std::uint8_t *pixels) {
    const __m256i by_channel = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,  //
                                                0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m256i halves_together = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i eight = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(pixels));
    const __m256i apart = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(eight, by_channel), halves_together);
    return {_mm256_castsi256_si128(apart), _mm256_extracti128_si256(apart, 1)};
}

// Eight pixels at a time; the last few of a row are those of the last eight again.
[[gnu::target("avx2")]] void split_row(const std::uint8_t *pixels, std::size_t y, const Target &target) {
    const std::size_t plane = target.height * target.width;
    auto *const row = reinterpret_cast<std::uint8_t *>(target.data) + y * target.width;
    for (std::size_t next = 0; next < target.width; next += 8) {
        const std::size_t x = std::min(next, target.width - 8);
        const auto [red_green, blue] = channels_of(pixels + x * 4);
        _mm_storel_epi64(reinterpret_cast<__m128i *>(row + x), red_green);
        _mm_storel_epi64(reinterpret_cast<__m128i *>(row + plane + x), _mm_unpackhi_epi64(red_green, red_green));
        _mm_storel_epi64(reinterpret_cast<__m128i *>(row + 2 * plane + x), blue);
    }
}

#define UNSTARVE_FMA [[gnu::target("avx2,fma"), gnu::always_inline]] inline

// A quotient, rounded as a division rounds it, but for divisors that `computes` finds: a product with the reciprocal,
// corrected by what remains. A division would take longer than the look into a table.
struct Divisor {
    __m256 by;
    __m256 reciprocal;
};
UNSTARVE_FMA Divisor divisor(float by) { return {_mm256_set1_ps(by), _mm256_set1_ps(1.0f / by)}; }
UNSTARVE_FMA __m256 divided(__m256 number, const Divisor &divisor) {
    const __m256 near = _mm256_mul_ps(number, divisor.reciprocal);
    return _mm256_fmadd_ps(_mm256_fnmadd_ps(near, divisor.by, number), divisor.reciprocal, near);
}

struct Channel {
    __m256 mean;
    Divisor std;
};
UNSTARVE_FMA Channel channel_of(const Scaling &scaling, std::size_t channel) {
    return {_mm256_set1_ps(scaling.mean[channel]), divisor(scaling.std[channel])};
}
UNSTARVE_FMA __m256 scaled(__m128i eight_bytes, const Divisor &full, const Channel &channel) {
    const __m256 values = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(eight_bytes));
    return divided(_mm256_sub_ps(divided(values, full), channel.mean), channel.std);
}

[[gnu::target("avx2,fma")]] void scale_row(const std::uint8_t *pixels, std::size_t y, const Target &target) {
    const Divisor full = divisor(255.0f);
    const Channel red = channel_of(*target.scaling, 0);
    const Channel green = channel_of(*target.scaling, 1);
    const Channel blue = channel_of(*target.scaling, 2);
    const std::size_t plane = target.height * target.width;
    auto *const row = reinterpret_cast<float *>(target.data) + y * target.width;
    for (std::size_t next = 0; next < target.width; next += 8) {
        const std::size_t x = std::min(next, target.width - 8);
        const Channels bytes = channels_of(pixels + x * 4);
        const __m128i greens = _mm_unpackhi_epi64(bytes.red_green, bytes.red_green);
        _mm256_storeu_ps(row + x, scaled(bytes.red_green, full, red));
        _mm256_storeu_ps(row + plane + x, scaled(greens, full, green));
        _mm256_storeu_ps(row + 2 * plane + x, scaled(bytes.blue, full, blue));
    }
}

[[gnu::target("avx2,fma")]] bool computes_with_vectors(const Scaling &scaling, const std::byte *table) {
    const Divisor full = divisor(255.0f);
    for (std::size_t at = 0; at < 3 * 256; at += 8) {
        const Channel channel = channel_of(scaling, at / 256);
        std::uint8_t bytes[16] = {};
        for (std::size_t i = 0; i < 8; ++i) {
            bytes[i] = static_cast<std::uint8_t>(at + i);
        }
        float values[8];
        _mm256_storeu_ps(values, scaled(_mm_loadu_si128(reinterpret_cast<const __m128i *>(bytes)), full, channel));
        if (std::memcmp(values, table + at * sizeof(float), sizeof values) != 0) {
            return false;
        }
    }
    return true;
}

#undef UNSTARVE_FMA

const bool has_avx2 = (__builtin_cpu_init(), __builtin_cpu_supports("avx2") != 0);
const bool has_fma = has_avx2 && __builtin_cpu_supports("fma") != 0;

bool can_split(const Target &target) { return has_avx2 && !target.channels_last && target.width >= 8; }

#else

bool can_split(const Target &) { return false; }
void split_row(const std::uint8_t *, std::size_t, const Target &) {}
void scale_row(const std::uint8_t *, std::size_t, const Target &) {}
constexpr bool has_fma = false;
bool computes_with_vectors(const Scaling &, const std::byte *) { return false; }

#endif

}  // namespace

bool computes(const Scaling &scaling, const std::byte *table) {
    return has_fma && computes_with_vectors(scaling, table);
}

void finish_row(const std::uint8_t *pixels, std::size_t y, const Target &target) {
    if (target.table == nullptr) {
        (can_split(target) ? split_row : copy_row)(pixels, y, target);
    } else if (target.scaling != nullptr && can_split(target)) {
        scale_row(pixels, y, target);
    } else if (target.item_bytes == 4) {
        look_up_row<std::uint32_t>(pixels, y, target);
    } else {
        look_up_row<std::uint16_t>(pixels, y, target);
    }
}

}  // namespace unstarve
