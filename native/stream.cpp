#include "stream.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __linux__
#include <sys/mman.h>
#endif

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace unstarve {

#ifdef __SSE2__

void copy_streaming(std::byte *to, const std::byte *from, std::size_t count) {
    constexpr std::size_t line = 64;
    const std::size_t head = std::min((line - reinterpret_cast<std::uintptr_t>(to) % line) % line, count);
    std::memcpy(to, from, head);
    std::size_t at = head;
    for (; at + line <= count; at += line) {
        const auto *const source = reinterpret_cast<const __m128i *>(from + at);
        auto *const target = reinterpret_cast<__m128i *>(to + at);
        const __m128i a = _mm_loadu_si128(source);
        const __m128i b = _mm_loadu_si128(source + 1);
        const __m128i c = _mm_loadu_si128(source + 2);
        const __m128i d = _mm_loadu_si128(source + 3);
        _mm_stream_si128(target, a);
        _mm_stream_si128(target + 1, b);
        _mm_stream_si128(target + 2, c);
        _mm_stream_si128(target + 3, d);
    }
    std::memcpy(to + at, from + at, count - at);
}

void finish_streaming() { _mm_sfence(); }

#else

void copy_streaming(std::byte *to, const std::byte *from, std::size_t count) { std::memcpy(to, from, count); }

void finish_streaming() {}

#endif

void prefer_huge_pages(std::byte *memory, std::size_t count) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    constexpr std::size_t huge_page = std::size_t{2} << 20;
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    const std::uintptr_t first = (begin + huge_page - 1) / huge_page * huge_page;
    const std::uintptr_t last = (begin + count) / huge_page * huge_page;
    if (first < last) {
        madvise(reinterpret_cast<void *>(first), last - first, MADV_HUGEPAGE);
    }
#else
    (void)memory, (void)count;
#endif
}

}  // namespace unstarve
