#include "finish.h"

#include <algorithm>
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

// Eight pixels at a time come apart into their channels; the last few of a row are those of the last eight again.
[[gnu::target("avx2")]] void split_row(const std::uint8_t *pixels, std::size_t y, const Target &target) {
    const __m256i by_channel = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,  //
                                                0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m256i halves_together = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const std::size_t plane = target.height * target.width;
    auto *const row = reinterpret_cast<std::uint8_t *>(target.data) + y * target.width;
    for (std::size_t next = 0; next < target.width; next += 8) {
        const std::size_t x = std::min(next, target.width - 8);
        const __m256i eight = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(pixels + x * 4));
        const __m256i apart =
            _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(eight, by_channel), halves_together);
        const __m128i red_green = _mm256_castsi256_si128(apart);
        const __m128i blue = _mm256_extracti128_si256(apart, 1);
        _mm_storel_epi64(reinterpret_cast<__m128i *>(row + x), red_green);
        _mm_storel_epi64(reinterpret_cast<__m128i *>(row + plane + x), _mm_unpackhi_epi64(red_green, red_green));
        _mm_storel_epi64(reinterpret_cast<__m128i *>(row + 2 * plane + x), blue);
    }
}

const bool has_avx2 = (__builtin_cpu_init(), __builtin_cpu_supports("avx2") != 0);

bool can_split(const Target &target) { return has_avx2 && !target.channels_last && target.width >= 8; }

#else

bool can_split(const Target &) { return false; }
void split_row(const std::uint8_t *, std::size_t, const Target &) {}

#endif

}  // namespace

void finish_row(const std::uint8_t *pixels, std::size_t y, const Target &target) {
    if (target.table == nullptr) {
        (can_split(target) ? split_row : copy_row)(pixels, y, target);
    } else if (target.item_bytes == 4) {
        look_up_row<std::uint32_t>(pixels, y, target);
    } else {
        look_up_row<std::uint16_t>(pixels, y, target);
    }
}

}  // namespace unstarve
