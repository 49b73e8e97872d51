#include "reader.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <thread>

#include "crew.h"
#include "direct.h"
#include "files.h"
#include "pool.h"

namespace unstarve {
namespace {

// Threads that wait for storage, and direct reads in flight, where the caller leaves the choice.
constexpr unsigned default_waiting_threads = 16;
constexpr unsigned default_depth = 32;

// However many callers share the depth: each has to keep storage busy while the others hand over what they read.
constexpr unsigned least_depth = 8;

// Threads that copy: a few cores saturate the memory bus, and the others have a model to train.
constexpr unsigned max_copying_threads = 4;

unsigned copying_threads(unsigned callers_now, unsigned allowed) {
    static const unsigned cores = std::clamp(std::thread::hardware_concurrency(), 1u, max_copying_threads);
    const unsigned share = std::max(cores / callers_now, 1u);
    return allowed == 0 ? share : std::min(share, allowed);
}

// Reads of all callers queue at the same device: what one adds beyond the depth only waits there, and pushes the
// others' bounce memory out of the CPU's caches.
unsigned depth_of_one(unsigned callers_now, unsigned depth) {
    return std::min(std::max(depth / callers_now, least_depth), depth);
}

unsigned no_more_than(std::size_t pieces, unsigned threads) {
    return static_cast<unsigned>(std::min<std::size_t>(std::max<std::size_t>(pieces, 1), threads));
}

ssize_t read_some(int fd, std::byte *to, std::uint64_t length, std::uint64_t offset, Patience patience) {
#ifdef RWF_NOWAIT
    if (patience == Patience::none) {
        const iovec part{to, length};
        return ::preadv2(fd, &part, 1, static_cast<off_t>(offset), RWF_NOWAIT);
    }
#else
    if (patience == Patience::none) {
        errno = EAGAIN;
        return -1;
    }
#endif
    return ::pread(fd, to, length, static_cast<off_t>(offset));
}

// False: not without waiting.
bool read_through_cache(int fd, const Read &read, std::size_t at, Patience patience, Failures &failures) {
    std::uint64_t got = 0;
    while (got < read.length) {
        const ssize_t more = read_some(fd, read.to + got, read.length - got, read.offset + got, patience);
        if (more > 0) {
            got += static_cast<std::uint64_t>(more);
        } else if (patience == Patience::none) {
            return false;  // whatever it is will show again
        } else if (more == 0) {
            failures.add(at, Trouble::ended, 0, got);
            return true;
        } else if (errno != EINTR) {
            failures.add(at, Trouble::read, errno, got);
            return true;
        }
    }
    return true;
}

bool read_run(const std::vector<Read> &reads, const Run &run, Patience patience, Failures &failures) {
    const Read &first = reads[run.first];
    const Opened file(first, 0, patience);
    if (file.fd() < 0) {
        failures.add(run, Trouble::open, file.error());
        return true;
    }
    if (!file.is_as_expected(first)) {
        failures.add(run, Trouble::changed, 0);
        return true;
    }
    for (std::size_t i = run.first; i < run.end; ++i) {
        if (!read_through_cache(file.fd(), reads[i], i, patience, failures)) {
            return false;
        }
    }
    return true;
}

// Reads the runs at `which`, and returns those that cannot be had without waiting.
std::vector<std::size_t> read_runs(const std::vector<Read> &reads, const std::vector<Run> &runs,
                                   const std::vector<std::size_t> &which, Patience patience, unsigned threads,
                                   Failures &failures) {
    std::vector<char> left(which.size(), 0);
    const auto read_one = [&](std::size_t i) {
        left[i] = read_run(reads, runs[which[i]], patience, failures) ? 0 : 1;
    };
    if (patience == Patience::none) {
        run_in_order(threads, which.size(), read_one);  // all threads for the batch that was asked for first
    } else {
        Pieces pieces(which.size());
        run_on_pool(no_more_than(which.size(), threads), pieces, [&] {
            for (std::size_t i; pieces.take(i);) {
                read_one(i);
            }
        });
    }
    std::vector<std::size_t> rest;
    for (std::size_t i = 0; i < which.size(); ++i) {
        if (left[i] != 0) {
            rest.push_back(which[i]);
        }
    }
    return rest;
}

std::size_t total_bytes(const std::vector<Read> &reads) {
    std::uint64_t total = 0;
    for (const Read &read : reads) {
        total += read.length;
    }
    return total;
}

std::vector<std::size_t> read_directly(const std::vector<Read> &reads, const std::vector<Run> &runs, How how,
                                       unsigned callers_now, Failures &failures,
                                       Report &report) {
    DirectWork work{reads, runs, failures, total_bytes(reads), Pieces(runs.size())};
    const unsigned depth = depth_of_one(callers_now, how.depth == 0 ? default_depth : how.depth);
    const bool queued = how.uring && uring_allowed();
    // A thread with a queue waits for all of its reads at once; without one, each waits for a single read.
    const unsigned copying = copying_threads(callers_now, how.threads);
    const unsigned threads = no_more_than(runs.size(), queued ? std::min(copying, depth) : depth);
    const unsigned depth_each = queued ? (depth + threads - 1) / threads : 1;
    run_on_pool(threads, work.pieces, [&] { take_part_directly(work, depth_each); });
    report.direct_bytes = work.direct_bytes;
    report.used_uring = work.used_uring;
    std::sort(work.refused.begin(), work.refused.end());
    work.refused.erase(std::unique(work.refused.begin(), work.refused.end()), work.refused.end());
    report.direct_refused = !work.refused.empty();
    return work.refused;
}

}  // namespace

Report read_all(const std::vector<Read> &reads, How how) {
    const Caller caller;
    const std::vector<Run> runs = runs_of(reads);
    const unsigned waiting = how.threads == 0 ? default_waiting_threads : how.threads;
    Failures failures;
    Report report;
    std::vector<std::size_t> left(runs.size());
    std::iota(left.begin(), left.end(), std::size_t{0});
    if (how.direct) {
        left = read_directly(reads, runs, how, caller.callers(), failures, report);
    }
    left = read_runs(reads, runs, left, Patience::none, copying_threads(1, how.threads), failures);
    read_runs(reads, runs, left, Patience::any, waiting, failures);
    report.failures = failures.in_order();
    return report;
}

}  // namespace unstarve
