#include "waits.h"

#include <algorithm>
#include <limits>

namespace unstarve {
namespace {

constexpr std::int64_t kShortNs = 50'000;

// Counters go up, and what is not known stays so.
std::int64_t difference(std::int64_t later, std::int64_t earlier) {
    return later < 0 || earlier < 0 ? kUnknown : later - earlier;
}

bool waited_for_nothing(const Moment &from, const Moment &to) { return to.waits >= 0 && from.waits == to.waits; }

// Runnable, but without a CPU: whatever it was not on, if there was nothing to wait for.
std::int64_t in_line_ns(const Moment &from, const Moment &to) {
    if (!waited_for_nothing(from, to)) {
        return difference(to.queued_ns, from.queued_ns);
    }
    return std::max<std::int64_t>(to.read_ns - from.read_ns - (to.cpu_ns - from.cpu_ns), 0);
}

Moment moment_of(const Reading &reading) {
    return {reading.wall_ns, reading.cpu_ns, reading.queued_ns, reading.waits, reading.read_ns};
}

}  // namespace

void Wait::enter(Counters &counters, std::int64_t ready) {
    begin_ns_ = clock_ns();
    counters_ = &counters;
    counters.fetched = false;
    depth_ = counters.depth++;
    busy = true;
    ready_ = ready;
    sampler_ns = 0;
    if (work != nullptr) {
        work->task = index;
    }
}

std::int64_t Wait::ask() {
    if (work != nullptr) {
        at_ask_.wall_ns = clock_ns();
        return at_ask_.wall_ns;
    }
    at_ask_ = counters_->ask(reads_line());
    if (!waited_for_nothing(counters_->last_got, at_ask_)) {
        wary_ = kWary;
    }
    return at_ask_.wall_ns;
}

std::int64_t Wait::got() {
    if (work != nullptr) {
        at_got_.wall_ns = clock_ns();
    } else {
        at_got_ = counters_->got(reads_line());
        wary_ -= wary_ > 0;
    }
    counters_->depth = depth_;
    busy = false;
    return at_got_.wall_ns;
}

std::int64_t Wait::leave() {
    counters_->depth = depth_;
    busy = false;
    return clock_ns();
}

bool Wait::record(std::int64_t task, std::int64_t size, std::int64_t nbytes, std::int64_t flags,
                  std::int64_t block) {
    const bool fetched = work != nullptr && counters_->fetched;
    const bool read = work == nullptr || fetched;
    const Moment &ask = fetched ? counters_->fetch_begin : at_ask_;
    const Moment &got = fetched ? counters_->fetch_end : at_got_;
    const Moment &before = counters_->last_got.wall_ns != 0 ? counters_->last_got : ask;
    const std::int64_t own_ns =
        std::min<std::int64_t>(ledger.own_ns, std::numeric_limits<std::uint32_t>::max());
    const std::int64_t values[] = {
        number,
        flags,
        epoch,
        index,
        thread,
        size,
        nbytes,
        at_ask_.wall_ns,
        at_got_.wall_ns,
        own_ns,
        block,
        task,
        ready_,
        sampler_ns,
        read ? got.cpu_ns - ask.cpu_ns : 0,
        in_line_ns(ask, got),
        read ? std::max<std::int64_t>(ask.cpu_ns - before.cpu_ns, 0) : 0,
        in_line_ns(before, ask),
    };
    if (depth_ == 0 && read) {
        counters_->last_got = got;
    }
    ledger.own_ns = 0;
    return layout_.append(values, ledger);
}

void Wait::done() {
    ++index;
    ledger.own_ns += at_ask_.wall_ns - begin_ns_ + clock_ns() - at_got_.wall_ns;
}

void Work::begin(Counters &counters, bool light) {
    if (light && done_.wall_ns != 0) {
        begin_ = counters.read_light(done_);
        counters.read_no_files();
    } else {
        begin_ = counters.read();
    }
    collated_ = false;
    slow_ns = 0;
}

void Work::collate(Counters &counters) {
    collated_ = true;
    only_timed_ = was_short_;
    if (only_timed_) {
        collate_.wall_ns = clock_ns();
    } else {
        collate_ = counters.read_light(begin_);
    }
}

std::int64_t Work::done(Counters &counters) {
    done_ = counters.read();
    if (!collated_) {
        collate_ = done_;
    } else {
        const std::int64_t collated_ns = done_.wall_ns - collate_.wall_ns;
        was_short_ = collated_ns < kShortNs;
        if (only_timed_) {  // so short that it was on a CPU
            const std::int64_t began_ns = collate_.wall_ns;
            collate_ = done_;
            collate_.wall_ns = began_ns;
            collate_.cpu_ns -= std::min(collated_ns, done_.cpu_ns - begin_.cpu_ns);
        }
    }
    counters.fetched = true;
    counters.fetch_begin = moment_of(begin_);
    counters.fetch_end = moment_of(done_);
    return done_.wall_ns;
}

bool Work::record(std::int64_t flags, std::int64_t samples, std::int64_t slow_index, std::int64_t opens) {
    const std::int64_t values[] = {
        loader,
        flags,
        iteration,
        task,
        samples,
        received_ns != 0 ? received_ns : begin_.wall_ns,
        begin_.wall_ns,
        collate_.wall_ns,
        done_.wall_ns,
        collate_.cpu_ns - begin_.cpu_ns,
        collate_.system_ns - begin_.system_ns,
        difference(collate_.queued_ns, begin_.queued_ns),
        // Collating reads no files, as a rule: what both have read was read by fetching.
        difference(done_.asked_bytes, begin_.asked_bytes),
        difference(done_.storage_bytes, begin_.storage_bytes),
        difference(done_.delay_ns, begin_.delay_ns),
        done_.major_faults - begin_.major_faults,
        done_.switches - begin_.switches,
        done_.cpu_ns - collate_.cpu_ns,
        done_.system_ns - collate_.system_ns,
        difference(done_.queued_ns, collate_.queued_ns),
        slow_index,
        slow_ns,
        opens,
    };
    return layout_.append(values, ledger);
}

}  // namespace unstarve
