// What a step of training costs and what making a batch costs, from readings to rows.
#pragma once

#include <cstdint>
#include <string>

#include "counters.h"
#include "ledger.h"

namespace unstarve {

// The batches made by one worker, or by the training process for one loader: begin, collate, done, record.
class Work {
public:
    Work(Ledger &its_ledger, int kind, const std::string &letters)
        : ledger(its_ledger), layout_(kind, letters) {}

    // Between two batches a worker reads no files, so that `light` is enough for all but the first.
    void begin(Counters &counters, bool light);
    // A collate that takes no longer than a reading costs is only timed, when the one before did so, too.
    void collate(Counters &counters);
    // When that was.
    std::int64_t done(Counters &counters);
    // Writes the row; false when a value does not fit its field.
    bool record(std::int64_t flags, std::int64_t samples, std::int64_t slow_index, std::int64_t opens);

    Ledger &ledger;
    std::int64_t loader = 0;
    std::int64_t iteration = 0;
    std::int64_t task = 0;
    std::int64_t received_ns = 0;
    std::int64_t slow_ns = 0;

private:
    Layout layout_;
    bool collated_ = false;
    bool only_timed_ = false;
    bool was_short_ = false;
    Reading begin_{};
    Reading collate_{};
    Reading done_{};
};

// The waits of one iteration over one loader, one after the other: enter, ask, then got and record, or leave.
class Wait {
public:
    Wait(Ledger &its_ledger, int kind, const std::string &letters)
        : ledger(its_ledger), layout_(kind, letters) {}

    // A batch is wanted. From here to `got` or `leave` the wait is `busy`.
    void enter(Counters &counters, std::int64_t ready);
    // Now nothing but the loader stands between training and its batch; when that was.
    std::int64_t ask();
    // The sampler has been at work since then.
    void sampled(std::int64_t since_ns) { sampler_ns += clock_ns() - since_ns; }
    // The batch is there, or an exception; when that was.
    std::int64_t got();
    std::int64_t leave();
    // Writes the row; false when a value does not fit its field.
    bool record(std::int64_t task, std::int64_t size, std::int64_t nbytes, std::int64_t flags,
                std::int64_t block);
    // All is done that unstarve does for this batch: counts it, recorded or not.
    void done();

    // Whether another wait of this thread was running when this one began.
    bool nested() const { return depth_ > 0; }

    Ledger &ledger;
    std::int64_t number = 0;
    std::int64_t epoch = -1;
    std::int64_t index = 0;
    std::int64_t thread = 0;
    std::int64_t sampler_ns = 0;
    // Where the waiting thread makes its batches itself: its counters are then read around the fetch.
    Work *work = nullptr;
    bool busy = false;
    // Whether what made a batch was timed where it was made: how long the waiting thread itself stood in line is
    // then asked for only around steps of training that may have done so.
    bool seen_inside = false;

private:
    bool reads_line() const { return !seen_inside || wary_ > 0; }

    Layout layout_;
    // For so many waits to come: a step has waited for something a short while ago, or may have.
    static constexpr int kWary = 2;
    int wary_ = kWary;
    Counters *counters_ = nullptr;
    std::int64_t depth_ = 0;
    std::int64_t ready_ = kUnknown;
    std::int64_t begin_ns_ = 0;
    Moment at_ask_ = kNoMoment;
    Moment at_got_ = kNoMoment;
};

}  // namespace unstarve
