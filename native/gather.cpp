#include "gather.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "pool.h"
#include "stream.h"

namespace unstarve {
namespace {

// What a thread must have to copy before waking it pays: below, two are no faster than one.
constexpr std::size_t min_bytes_per_thread = std::size_t{2} << 20;

// Threads take work in pieces of about this size, so that one that starts late leaves nothing waiting.
constexpr std::size_t piece_bytes = std::size_t{256} << 10;

// A few cores saturate the memory bus; the others have a model to train.
constexpr unsigned max_automatic_threads = 4;

bool overlap(const std::byte *a, std::size_t a_bytes, const std::byte *b, std::size_t b_bytes) {
    const std::less<const std::byte *> before;  // defined for unrelated pointers, unlike `<`
    return a_bytes != 0 && b_bytes != 0 && before(a, b + b_bytes) && before(b, a + a_bytes);
}

void check_bounds(const std::int64_t *index, std::size_t index_count, std::size_t row_count) {
    // Shifted up by the number of rows, the good ones are 0 … 2 · rows - 1: one comparison without a sign.
    const auto is_bad = [=](std::int64_t row) {
        return static_cast<std::uint64_t>(row) + row_count >= 2 * row_count;
    };
    bool any_bad = false;
    for (std::size_t i = 0; i < index_count; ++i) {
        any_bad |= is_bad(index[i]);  // no early exit: that is faster when all are good
    }
    if (!any_bad) {
        return;
    }
    const std::int64_t *const end = index + index_count;
    const std::int64_t *const bad = std::find_if(index, end, is_bad);
    if (bad != end) {
        throw std::out_of_range("index " + std::to_string(*bad) + " at position " +
                                std::to_string(bad - index) + " is out of bounds for " +
                                std::to_string(row_count) + " rows");
    }
}

const std::byte *row_at(Rows source, std::int64_t at) {
    const std::size_t row = static_cast<std::size_t>(at) + (at < 0 ? source.count : 0);
    // Already checked; but without the GIL another thread may have changed the index since.
    return source.data + std::min(row, source.count - 1) * source.step_bytes;
}

// Rows lie anywhere: the processor cannot guess the next one, but can be told. Long rows it follows by itself
// once their beginning is there.
void announce(const std::byte *row, std::size_t row_bytes) {
#if defined(__GNUC__)
    constexpr std::size_t line_bytes = 64;
    constexpr std::size_t most_bytes = 1024;
#if !defined(__clang__)
#pragma GCC unroll 8  // a twelfth less time for rows of 400 bytes
#endif
    for (std::size_t at = 0; at < std::min(row_bytes, most_bytes); at += line_bytes) {
        __builtin_prefetch(row + at);
    }
#else
    (void)row, (void)row_bytes;
#endif
}

// `fixed_bytes`, where not 0, is the size of a row known to the compiler: a label costs one load and store
// instead of a call, and the processor has several of them under way by itself.
template <std::size_t fixed_bytes>
void copy_rows(Rows source, const std::int64_t *index, std::size_t index_count, std::byte *out) {
    const std::size_t row_bytes = fixed_bytes != 0 ? fixed_bytes : source.row_bytes;
    const bool is_dense = source.step_bytes == source.row_bytes;
    const Rows rows{source.data, source.count, row_bytes, is_dense ? row_bytes : source.step_bytes};
    constexpr std::size_t ahead = 4;
    for (std::size_t i = 0; i < index_count; ++i) {
        if (fixed_bytes == 0 && i + ahead < index_count) {
            announce(row_at(rows, index[i + ahead]), rows.row_bytes);
        }
        std::memcpy(out + i * rows.row_bytes, row_at(rows, index[i]), rows.row_bytes);
    }
}

void stream_rows(Rows source, const std::int64_t *index, std::size_t index_count, std::byte *out) {
    for (std::size_t i = 0; i < index_count; ++i) {
        if (i + 1 < index_count) {
            announce(row_at(source, index[i + 1]), source.row_bytes);
        }
        copy_streaming(out + i * source.row_bytes, row_at(source, index[i]), source.row_bytes);
    }
    finish_streaming();
}

auto copier_for(std::size_t row_bytes, std::size_t total_bytes) {
    if (worth_streaming(total_bytes, row_bytes)) {
        return stream_rows;
    }
    switch (row_bytes) {
        case 1: return copy_rows<1>;
        case 2: return copy_rows<2>;
        case 4: return copy_rows<4>;
        case 8: return copy_rows<8>;
        case 16: return copy_rows<16>;
        default: return copy_rows<0>;
    }
}

unsigned threads_worth_waking(std::size_t total_bytes, std::size_t piece_count, unsigned allowed) {
    const std::size_t useful = std::min(total_bytes / min_bytes_per_thread, piece_count);
    if (useful < 2 || allowed == 1) {
        return 1;  // before asking for the number of cores, which takes longer than a small batch
    }
    if (allowed == 0) {
        allowed = std::clamp(std::thread::hardware_concurrency(), 1u, max_automatic_threads);
    }
    return static_cast<unsigned>(std::min<std::size_t>(useful, allowed));
}

}  // namespace

void gather(Rows source, const std::int64_t *index, std::size_t index_count, std::byte *out,
            unsigned threads) {
    const std::size_t row_bytes = source.row_bytes;
    const std::size_t total_bytes = index_count * row_bytes;
    const std::size_t source_bytes = source.count == 0 ? 0 : (source.count - 1) * source.step_bytes + row_bytes;
    if (overlap(source.data, source_bytes, out, total_bytes)) {
        throw std::invalid_argument("out overlaps source: gather into a buffer of its own");
    }
    if (overlap(reinterpret_cast<const std::byte *>(index), index_count * sizeof *index, out, total_bytes)) {
        throw std::invalid_argument("out overlaps index: gather into a buffer of its own");
    }
    check_bounds(index, index_count, source.count);
    if (total_bytes == 0) {
        return;
    }

    const auto copy = copier_for(row_bytes, total_bytes);
    const std::size_t piece_rows = std::max<std::size_t>(piece_bytes / row_bytes, 1);
    const std::size_t piece_count = (index_count + piece_rows - 1) / piece_rows;
    const unsigned thread_count = threads_worth_waking(total_bytes, piece_count, threads);
    if (thread_count == 1) {
        copy(source, index, index_count, out);
        return;
    }
    Pieces pieces(piece_count);
    run_on_pool(thread_count, pieces, [&] {
        for (std::size_t piece; pieces.take(piece);) {
            const std::size_t first = piece * piece_rows;
            copy(source, index + first, std::min(piece_rows, index_count - first), out + first * row_bytes);
        }
    });
}

}  // namespace unstarve
