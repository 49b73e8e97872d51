// Indexed rows of one array → one contiguous batch buffer.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unstarve {

// A C-contiguous array seen as `count` rows of `row_bytes` each. Not owned.
struct Rows {
    const std::byte *data;
    std::size_t count;
    std::size_t row_bytes;
    std::size_t step_bytes = row_bytes;  // from one row to the next; if smaller, they overlap
};

// Copies source row index[i] to row i of `out`, which has room for `index_count` rows.
//
// A negative index counts from the end. Every index is checked before the first byte is written:
// std::out_of_range names the first bad one. std::invalid_argument: `out` overlaps one of the
// others.
//
// `threads` is the most threads to use, the caller's included; 0 chooses. Small batches are copied by
// the caller alone whatever it says, because starting a thread costs more than copying them.
void gather(Rows source, const std::int64_t *index, std::size_t index_count, std::byte *out,
            unsigned threads);

}  // namespace unstarve
