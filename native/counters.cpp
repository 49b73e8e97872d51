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

// A kernel that counts no switches tells nothing by not counting one.
Switches switches_of(const rusage &usage) {
    const bool counted = usage.ru_nvcsw + usage.ru_nivcsw > 0;
    return {counted ? usage.ru_nvcsw : kUnknown, usage.ru_nivcsw};
}

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

bool Counters::stand(Moment &moment, const Switches &switches, bool in_line) {
    const std::int64_t now = clock_ns();
    const std::int64_t since_ns = now - latest_.read_ns;
    const bool waited = switches.waits < 0 || switches.waits != latest_.waits;
    const bool a_moment = since_ns < kMomentNs;
    const bool kept_core = !waited && a_moment && switches.losses == losses_;
    moment.waits = switches.waits;
    // What a hypervisor takes away without a switch is told as CPU time, or as time in line, and counted as
    // neither: what was told never goes back.
    if (kept_core) {
        moment.cpu_ns = latest_.cpu_ns + since_ns;
        moment.read_ns = now;
    } else {
        moment.cpu_ns = std::max(now_ns(CLOCK_THREAD_CPUTIME_ID), told_cpu_ns_);
        moment.read_ns = clock_ns();
    }
    if (!waited && latest_.queued_ns >= 0) {
        const std::int64_t off_cpu_ns = moment.read_ns - latest_.read_ns - (moment.cpu_ns - latest_.cpu_ns);
        moment.queued_ns = latest_.queued_ns + std::max<std::int64_t>(off_cpu_ns, 0);
    } else {
        const std::int64_t counted_ns = in_line ? queued() : kUnknown;
        moment.queued_ns = counted_ns < 0 ? kUnknown : std::max(counted_ns, told_queued_ns_);
    }
    told_cpu_ns_ = moment.cpu_ns;
    told_queued_ns_ = std::max(told_queued_ns_, moment.queued_ns);
    if (!kept_core || moment.queued_ns != latest_.queued_ns) {
        latest_ = moment;
        losses_ = switches.losses;
    }
    return !waited && a_moment;
}

bool Counters::read_thread(Reading &reading) {
    const rusage usage = own_usage();
    reading.system_ns = usage.ru_stime.tv_sec * kSecond + usage.ru_stime.tv_usec * 1000;
    reading.major_faults = usage.ru_majflt;
    reading.switches = usage.ru_nvcsw;
    Moment moment{};
    const bool waited_for_nothing = stand(moment, switches_of(usage), true);
    reading.queued_ns = moment.queued_ns;
    reading.cpu_ns = moment.cpu_ns;
    reading.waits = moment.waits;
    reading.read_ns = moment.read_ns;
    reading.wall_ns = clock_ns();
    return waited_for_nothing;
}

Reading Counters::read() {
    Reading reading{};
    const bool waited_for_nothing = read_thread(reading);
    if (!waited_for_nothing || files_waits_ != reading.waits) {
        std::int64_t values[5];  // rchar, wchar, syscr, syscw, read_bytes
        const bool known = read_numbers(io_, values);
        asked_bytes_ = known ? values[0] : kUnknown;
        storage_bytes_ = known ? values[4] : kUnknown;
        io_ = known ? io_ : -1;
        const std::int64_t ticks = delay_ticks(stat_);
        delay_ns_ = ticks < 0 ? kUnknown : ticks * tick_ns_;
        stat_ = ticks < 0 ? -1 : stat_;
        files_waits_ = reading.waits;
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
    stand(moment, switches_of(own_usage()), in_line);
    moment.wall_ns = clock_ns();
    return moment;
}

Moment Counters::got(bool in_line) {
    Moment moment{};
    moment.wall_ns = clock_ns();
    stand(moment, switches_of(own_usage()), in_line);
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
