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
    // How often the thread had left its core, to wait or not; 0 is unknown.
    std::int64_t turns;
};

// Where a thread stands when it begins or ends to wait or to fetch.
struct Moment {
    std::int64_t wall_ns;
    std::int64_t cpu_ns;
    std::int64_t queued_ns;
    // How often it had left its core; 0 is unknown.
    std::int64_t turns;
};

// The counters of the thread that uses it. Reading them costs most where training has left the caches cold. So a
// thread that has kept its core since they were read, a moment ago, is not asked again: all of that time was CPU
// time, none was spent in line or waiting for a disk. Switches alone tell, which are cheap to ask for.
//
// Descriptors are those of /proc/thread-self/schedstat, /proc/self/io
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
    // Without what is told for the process: that stays as it was before.
    Reading read_light(const Reading &before);
    // The latest reading stands for the files, too: none were read since `read`.
    void read_no_files() { files_turns_ = latest_.turns; }

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
    Moment last_got{0, 0, kUnknown, 0};
    // Around its last fetch, if it has fetched since `fetched` was set to false.
    bool fetched = false;
    Moment fetch_begin{0, 0, kUnknown, 0};
    Moment fetch_end{0, 0, kUnknown, 0};

private:
    // Fills in what is told for the thread; whether it has kept its core.
    bool read_thread(Reading &reading);
    // CPU time and time in line of the thread, by the counters or without them; all but the clock.
    bool stand(Moment &moment, std::int64_t turns, bool in_line);

    int schedstat_;
    int io_;
    int stat_;
    std::int64_t tick_ns_;
    // When the counters were read last, and what they said.
    Moment latest_{0, 0, kUnknown, 0};
    std::int64_t told_cpu_ns_ = 0;
    // Of the process, and how often the thread had left its core by then.
    std::int64_t asked_bytes_ = kUnknown;
    std::int64_t storage_bytes_ = kUnknown;
    std::int64_t delay_ns_ = kUnknown;
    std::int64_t files_turns_ = 0;
};

}  // namespace unstarve
