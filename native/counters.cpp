#include "counters.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>

namespace unstarve {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

std::int64_t now_ns(clockid_t clock) {
    timespec time{};
    return clock_gettime(clock, &time) == 0 ? time.tv_sec * kSecond + time.tv_nsec : kUnknown;
}

// The numbers in a small text, in order; anything else separates them. How many there were.
std::size_t numbers_in(int fd, std::int64_t *values, std::size_t most) {
    char text[256];
    const ssize_t length = fd < 0 ? -1 : pread(fd, text, sizeof text, 0);
    std::size_t found = 0;
    bool inside = false;
    for (ssize_t at = 0; at < length; ++at) {
        const char c = text[at];
        if (c < '0' || c > '9') {
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
        values[found - 1] = values[found - 1] * 10 + (c - '0');
    }
    return found;
}

// "39448 1203 7": ns on a CPU, ns runnable but not running, timeslices.
std::int64_t queued(int schedstat) {
    std::int64_t values[3];
    return numbers_in(schedstat, values, 3) == 3 ? values[1] : kUnknown;
}

}  // namespace

Reading read_counters(int schedstat, int io) {
    Reading reading{0, 0, 0, queued(schedstat), kUnknown, kUnknown, 0, 0};
    std::int64_t values[5];  // rchar, wchar, syscr, syscw, read_bytes
    if (numbers_in(io, values, 5) == 5) {
        reading.asked_bytes = values[0];
        reading.storage_bytes = values[4];
    }
#ifdef RUSAGE_THREAD
    rusage usage{};
    if (getrusage(RUSAGE_THREAD, &usage) == 0) {
        reading.system_ns = usage.ru_stime.tv_sec * kSecond + usage.ru_stime.tv_usec * 1000;
        reading.major_faults = usage.ru_majflt;
        reading.switches = usage.ru_nvcsw;
    }
#endif
    reading.cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
    reading.wall_ns = now_ns(CLOCK_MONOTONIC);
    return reading;
}

void read_quick(int schedstat, std::int64_t &cpu_ns, std::int64_t &queued_ns) {
    queued_ns = queued(schedstat);
    cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
}

}  // namespace unstarve
