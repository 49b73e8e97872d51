#include "counters.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>

namespace unstarve {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kMomentNs = 20'000'000;
constexpr std::size_t kDelayField = 39;  // of /proc/…/stat, counted from 0 behind the name, which may hold blanks

std::int64_t now_ns(clockid_t clock) {
    timespec time{};
    return clock_gettime(clock, &time) == 0 ? time.tv_sec * kSecond + time.tv_nsec : kUnknown;
}

// Of the calling thread; nothing where the system does not tell it.
rusage own_usage() {
    rusage usage{};
#ifdef RUSAGE_THREAD
    if (getrusage(RUSAGE_THREAD, &usage) != 0) {
        usage = {};
    }
#endif
    return usage;
}

// How often it has left its core, to wait for something or for somebody else.
std::int64_t turns_of(const rusage &usage) { return usage.ru_nvcsw + usage.ru_nivcsw; }

// The numbers in a text, in order; anything else separates them. How many there were.
std::size_t numbers_in(const char *text, const char *end, std::int64_t *values, std::size_t most) {
    std::size_t found = 0;
    bool inside = false;
    for (; text < end; ++text) {
        if (*text < '0' || *text > '9') {
            inside = false;
            continue;
        }
        if (!inside) {
            if (found == most) {
                break;
            }
            values[found++] = 0;
            inside = true;
        }
        values[found - 1] = values[found - 1] * 10 + (*text - '0');
    }
    return found;
}

template <std::size_t most>
bool read_numbers(int fd, std::int64_t (&values)[most]) {
    char text[256];
    const ssize_t length = fd < 0 ? -1 : pread(fd, text, sizeof text, 0);
    return length > 0 && numbers_in(text, text + length, values, most) == most;
}

// "7 (python3) S 1 7 7 0 -1 4194560 …": ticks of block-I/O delay, or kUnknown.
std::int64_t delay_ticks(int stat) {
    char text[1024];
    const ssize_t length = stat < 0 ? -1 : pread(stat, text, sizeof text - 1, 0);
    if (length <= 0) {
        return kUnknown;
    }
    text[length] = '\0';
    const char *at = std::strrchr(text, ')');
    for (std::size_t field = 0; at != nullptr && field <= kDelayField; ++field) {
        at = std::strchr(at + 1, ' ');
    }
    std::int64_t ticks[1];
    const bool found = at != nullptr && numbers_in(at, text + length, ticks, 1) == 1;
    return found ? ticks[0] : kUnknown;
}

}  // namespace

std::int64_t clock_ns() { return now_ns(CLOCK_MONOTONIC); }

// "39448 1203 7": ns on a CPU, ns runnable but not running, timeslices.
std::int64_t Counters::queued() {
    std::int64_t values[3];
    if (!read_numbers(schedstat_, values)) {
        schedstat_ = -1;
        return kUnknown;
    }
    return values[1];
}

bool Counters::stand(Moment &moment, std::int64_t turns, bool in_line) {
    const std::int64_t since_ns = clock_ns() - latest_.wall_ns;
    // A kernel that counts no switches tells nothing by not counting one.
    const bool kept_core = turns > 0 && turns == latest_.turns && since_ns < kMomentNs;
    moment.turns = turns;
    if (kept_core) {
        moment.cpu_ns = latest_.cpu_ns + since_ns;
        if (in_line && latest_.queued_ns < 0) {
            latest_.queued_ns = queued();
        }
        moment.queued_ns = latest_.queued_ns;
    } else {
        moment.queued_ns = in_line ? queued() : kUnknown;
        // What a hypervisor took away without a switch was told as CPU time: counters never go back.
        moment.cpu_ns = std::max(now_ns(CLOCK_THREAD_CPUTIME_ID), told_cpu_ns_);
        latest_ = {clock_ns(), moment.cpu_ns, moment.queued_ns, turns};
    }
    told_cpu_ns_ = moment.cpu_ns;
    return kept_core;
}

bool Counters::read_thread(Reading &reading) {
    const rusage usage = own_usage();
    reading.system_ns = usage.ru_stime.tv_sec * kSecond + usage.ru_stime.tv_usec * 1000;
    reading.major_faults = usage.ru_majflt;
    reading.switches = usage.ru_nvcsw;
    Moment moment{};
    const bool kept_core = stand(moment, turns_of(usage), true);
    reading.queued_ns = moment.queued_ns;
    reading.cpu_ns = moment.cpu_ns;
    reading.turns = moment.turns;
    reading.wall_ns = clock_ns();
    return kept_core;
}

Reading Counters::read() {
    Reading reading{};
    const bool kept_core = read_thread(reading);
    if (!kept_core || files_turns_ != reading.turns) {
        std::int64_t values[5];  // rchar, wchar, syscr, syscw, read_bytes
        const bool known = read_numbers(io_, values);
        asked_bytes_ = known ? values[0] : kUnknown;
        storage_bytes_ = known ? values[4] : kUnknown;
        io_ = known ? io_ : -1;
        const std::int64_t ticks = delay_ticks(stat_);
        delay_ns_ = ticks < 0 ? kUnknown : ticks * tick_ns_;
        stat_ = ticks < 0 ? -1 : stat_;
        files_turns_ = reading.turns;
    }
    reading.asked_bytes = asked_bytes_;
    reading.storage_bytes = storage_bytes_;
    reading.delay_ns = delay_ns_;
    return reading;
}

Reading Counters::read_light(const Reading &before) {
    Reading reading = before;
    read_thread(reading);
    return reading;
}

Moment Counters::ask(bool in_line) {
    Moment moment{};
    stand(moment, turns_of(own_usage()), in_line);
    moment.wall_ns = clock_ns();
    return moment;
}

Moment Counters::got(bool in_line) {
    Moment moment{};
    moment.wall_ns = clock_ns();
    stand(moment, turns_of(own_usage()), in_line);
    return moment;
}

void Counters::close() {
    for (int *fd : {&schedstat_, &io_, &stat_}) {
        if (*fd >= 0) {
            ::close(*fd);  // where somebody else was faster, there is nothing left to do
        }
        *fd = -1;
    }
}

}  // namespace unstarve
