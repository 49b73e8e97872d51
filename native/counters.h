// What the kernel counts for the calling thread, in one go: the price of a reading is paid for every batch.
#pragma once

#include <cstdint>

namespace unstarve {

constexpr std::int64_t kUnknown = -1;

struct Reading {
    std::int64_t wall_ns;
    std::int64_t cpu_ns;
    std::int64_t system_ns;
    std::int64_t queued_ns;
    std::int64_t asked_bytes;
    std::int64_t storage_bytes;
    std::int64_t major_faults;
    std::int64_t switches;
};

// Descriptors of /proc/thread-self/schedstat and /proc/self/io, or -1 for none. What cannot be read, or does
// not read like a counter, is kUnknown.
Reading read_counters(int schedstat, int io);

// Thread CPU time alone, and nanoseconds runnable without a CPU.
void read_quick(int schedstat, std::int64_t &cpu_ns, std::int64_t &queued_ns);

}  // namespace unstarve
