// What the kernel counts for one thread, in one go: the price of a reading is paid for every batch.
#pragma once

#include <cstdint>

namespace unstarve {

constexpr std::int64_t kUnknown = -1;

std::int64_t clock_ns();

struct Reading {
    std::int64_t wall_ns;
    std::int64_t cpu_ns;
    std::int64_t system_ns;
    std::int64_t queued_ns;
    std::int64_t asked_bytes;
    std::int64_t storage_bytes;
    std::int64_t major_faults;
    std::int64_t switches;
    std::int64_t delay_ns;
};

// Where a thread stands when it begins or ends to wait or to fetch.
struct Moment {
    std::int64_t wall_ns;
    std::int64_t cpu_ns;
    std::int64_t queued_ns;
};

// The counters of the thread that uses it. Descriptors are those of /proc/thread-self/schedstat, /proc/self/io
// and /proc/thread-self/stat, or -1 for none; they are closed with it. What cannot be read, or does not read
// like a counter, is kUnknown and not read again: the descriptor has become somebody else's.
class Counters {
public:
    Counters(int schedstat, int io, int stat, std::int64_t tick_ns)
        : schedstat_(schedstat), io_(io), stat_(stat), tick_ns_(tick_ns) {}
    ~Counters() { close(); }
    Counters(const Counters &) = delete;
    Counters &operator=(const Counters &) = delete;

    Reading read();
    // Without what is read from files of the process: that stays as it was before.
    Reading read_light(const Reading &before);

    // For a wait: the clock is read last when it begins and first when it ends, so that reading the counters
    // is not part of it.
    Moment ask();
    Moment got();

    // Nanoseconds runnable without a CPU; this one may be asked for by any thread.
    std::int64_t queued();

    void close();

    int schedstat() const { return schedstat_; }
    int io() const { return io_; }
    int stat() const { return stat_; }

    // How many waits of this thread are running inside each other.
    std::int64_t depth = 0;
    // The end of its last outermost wait; wall_ns is 0 before the first.
    Moment last_got{0, 0, kUnknown};
    // Around its last fetch, if it has fetched since `fetched` was set to false.
    bool fetched = false;
    Moment fetch_begin{0, 0, kUnknown};
    Moment fetch_end{0, 0, kUnknown};

private:
    void read_thread(Reading &reading);

    int schedstat_;
    int io_;
    int stat_;
    std::int64_t tick_ns_;
};

}  // namespace unstarve
