#include "reader.h"

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <thread>
#include <utility>

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

// What read_all works on.
struct Work {
    std::vector<Read> reads;
    std::vector<Run> runs;
    Finder *finder;
    Failures failures{};
};

// False: not without waiting.
bool read_run(Work &work, const Run &run, Patience patience) {
    const Read &first = work.reads[run.first];
    const Opened file(first, 0, patience);
    if (file.fd() < 0) {
        work.failures.add(run, first.size_bytes == not_looked_into ? Trouble::other : Trouble::open, file.error());
        return true;
    }
    if (!file.is_as_expected(first)) {
        const bool may_look = work.finder != nullptr;
        const Finder::Seen seen =
            may_look ? work.finder->look(file, patience, work.reads, run) : Finder::Seen::other;
        if (seen == Finder::Seen::other) {
            work.failures.add(run, may_look ? Trouble::other : Trouble::changed, 0);
        }
        if (seen != Finder::Seen::found) {
            return seen != Finder::Seen::waits;
        }
    }
    for (std::size_t i = run.first; i < run.end; ++i) {
        if (!read_through_cache(file.fd(), work.reads[i], i, patience, work.failures)) {
            return false;
        }
    }
    return true;
}

// Reads the runs at `which`, and returns those that cannot be had without waiting.
std::vector<std::size_t> read_runs(Work &work, const std::vector<std::size_t> &which, Patience patience,
                                   unsigned threads) {
    std::vector<char> left(which.size(), 0);
    const auto read_one = [&](std::size_t i) { left[i] = read_run(work, work.runs[which[i]], patience) ? 0 : 1; };
    if (patience == Patience::none) {
        run_in_order(threads, which.size(), read_one, WorkKind::copying);  // what was asked for first comes first
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

std::vector<std::size_t> read_directly(Work &all, How how, unsigned callers_now, Report &report) {
    DirectWork work{all.reads, all.runs, all.failures, total_bytes(all.reads), Pieces(all.runs.size())};
    const unsigned depth = depth_of_one(callers_now, how.depth == 0 ? default_depth : how.depth);
    const bool queued = how.uring && uring_allowed();
    // A thread with a queue waits for all of its reads at once; without one, each waits for a single read.
    const unsigned copying = copying_threads(callers_now, how.threads);
    const unsigned threads = no_more_than(all.runs.size(), queued ? std::min(copying, depth) : depth);
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

Report read_all(std::vector<Read> reads, How how, Finder *finder) {
    const Caller caller;
    std::vector<Run> runs = runs_of(reads);
    Work work{std::move(reads), std::move(runs), finder};
    const unsigned waiting = how.threads == 0 ? default_waiting_threads : how.threads;
    Report report;
    std::vector<std::size_t> left(work.runs.size());
    std::iota(left.begin(), left.end(), std::size_t{0});
    if (how.direct && finder == nullptr) {
        left = read_directly(work, how, caller.callers(), report);
    }
    left = read_runs(work, left, Patience::none, copying_threads(1, how.threads));
    read_runs(work, left, Patience::any, waiting);
    report.failures = work.failures.in_order();
    return report;
}

}  // namespace unstarve
