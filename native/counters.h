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
    // As in a Moment.
    std::int64_t waits;
    std::int64_t read_ns;
};

// How often a thread has left its core: to wait for something, and because others got it.
struct Switches {
    std::int64_t waits;
    std::int64_t losses;
};

// Where a thread stands when it begins or ends to wait or to fetch.
struct Moment {
    std::int64_t wall_ns;
    std::int64_t cpu_ns;
    std::int64_t queued_ns;
    // How often it had given its core away to wait for something; kUnknown where nobody counts.
    std::int64_t waits;
    // When its CPU time was read.
    std::int64_t read_ns;
};

constexpr Moment kNoMoment{0, 0, kUnknown, kUnknown, 0};

// The counters of the thread that uses it. Reading them costs most where training has left the caches cold. So
// they are asked for only where the thread's switches, which are cheap to ask for, do not tell the rest. While it
// gave no core away to wait, time off the CPU was time in line, and nothing was waited for; while it has also lost
// none to others, and for a moment only, all of the time was CPU time.
//
// Descriptors are those of /proc/thread-self/schedstat, /proc/self/io and /proc/thread-self/stat, or -1 for none; they are closed with it. What cannot be read, or does not read
// like a counter, is kUnknown and not read again: the descriptor has become somebody else's.
class Counters {
public:
    Counters(int schedstat, int io, int stat, std::int64_t tick_ns)
        : schedstat_(schedstat), io_(io), stat_(stat), tick_ns_(tick_ns) {}
    ~Counters() { close(); }
    Counters(const Counters &) = delete;
    Counters &operator=(const Counters &) = delete;

    Reading read();
    // Without what is told for the process: that stays as it was before.
    Reading read_light(const Reading &before);
    // The latest reading stands for the files, too: none were read since `read`.
    void read_no_files() { files_waits_ = latest_.waits; }

    // For a wait: the clock is read last when it begins and first when it ends, so that reading the counters
    // is not part of it. Time in line, the dearest of them, is kUnknown if it is not wanted.
    Moment ask(bool in_line);
    Moment got(bool in_line);

    // Nanoseconds runnable without a CPU; this one may be asked for by any thread.
    std::int64_t queued();

    void close();

    int schedstat() const { return schedstat_; }
    int io() const { return io_; }
    int stat() const { return stat_; }

    // How many waits of this thread are running inside each other.
    std::int64_t depth = 0;
    // The end of its last outermost wait; wall_ns is 0 before the first.
    Moment last_got = kNoMoment;
    // Around its last fetch, if it has fetched since `fetched` was set to false.
    bool fetched = false;
    Moment fetch_begin = kNoMoment;
    Moment fetch_end = kNoMoment;

private:
    // Fills in what is told for the thread; whether it waited for nothing, a moment long.
    bool read_thread(Reading &reading);
    // CPU time and time in line of the thread, by the counters or without them; all but the clock.
    bool stand(Moment &moment, const Switches &switches, bool in_line);

    int schedstat_;
    int io_;
    int stat_;
    std::int64_t tick_ns_;
    // When the counters were read last, and what they said.
    Moment latest_ = kNoMoment;
    // How often the thread had lost its core to others by then.
    std::int64_t losses_ = 0;
    std::int64_t told_cpu_ns_ = 0;
    std::int64_t told_queued_ns_ = 0;
    // Of the process, and how often the thread had waited by then.
    std::int64_t asked_bytes_ = kUnknown;
    std::int64_t storage_bytes_ = kUnknown;
    std::int64_t delay_ns_ = kUnknown;
    std::int64_t files_waits_ = kUnknown;
};

}  // namespace unstarve
