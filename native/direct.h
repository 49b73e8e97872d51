// Reads past the page cache: O_DIRECT, in aligned pieces, many in flight.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "files.h"
#include "pool.h"

namespace unstarve {

// What the threads of one call share. Each takes runs, by `pieces`, until none is left.
struct DirectWork {
    const std::vector<Read> &reads;
    const std::vector<Run> &runs;
    Failures &failures;
    std::size_t total_bytes;  // of all reads
    Pieces pieces;
    std::atomic<std::uint64_t> direct_bytes{0};
    std::atomic<bool> used_uring{false};
    std::mutex mutex{};                // guards what follows
    std::vector<std::size_t> refused{};  // runs whose file system has no O_DIRECT: to be read otherwise
};

// Whether io_uring works in this process, found out once.
bool uring_allowed();

// Takes part in the work: through a queue of `depth` reads, or, with depth 1, by waiting for each.
void take_part_directly(DirectWork &work, unsigned depth);

}  // namespace unstarve
