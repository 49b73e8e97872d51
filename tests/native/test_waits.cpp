#include "waits.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "check.h"

using unstarve::Counters;
using unstarve::kUnknown;
using unstarve::Ledger;
using unstarve::Moment;
using unstarve::Wait;
using unstarve::Work;

namespace {

const std::string batch_letters(18, 'q');
const std::string work_letters(23, 'q');

std::vector<std::int64_t> only_row(Ledger &ledger) {
    const auto taken = ledger.take();
    CHECK(taken.size() == 1);
    std::vector<std::int64_t> values(taken[0].second.size() / sizeof(std::int64_t));
    std::memcpy(values.data(), taken[0].second.data(), taken[0].second.size());
    return values;
}

int temporary_file(const std::string &text) {
    char path[] = "/tmp/unstarve-test-XXXXXX";
    const int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK(unlink(path) == 0);
    CHECK(write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    return fd;
}

void counters_are_read_from_the_kernels_text() {
    const std::string stat = "7 (a ) b) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 "
                             "32 33 34 35 36 37 38 39 40 41 42 43 44\n";
    Counters counters(temporary_file("39448 1203 7\n"),
                      temporary_file("rchar: 6976\nwchar: 1\nsyscr: 10\nsyscw: 2\nread_bytes: 4096\n"),
                      temporary_file(stat), 10);
    const unstarve::Reading reading = counters.read();
    CHECK(reading.queued_ns == 1203);
    CHECK(reading.asked_bytes == 6976 && reading.storage_bytes == 4096);
    CHECK(reading.delay_ns == 420);
    CHECK(reading.cpu_ns > 0 && reading.wall_ns > 0);
    CHECK(counters.schedstat() >= 0 && counters.io() >= 0 && counters.stat() >= 0);
}

void what_does_not_read_like_a_counter_is_given_up_and_left_open() {
    const int foreign = temporary_file("no numbers");
    {
        Counters counters(foreign, foreign, foreign, 10);
        const unstarve::Reading reading = counters.read();
        CHECK(reading.queued_ns == kUnknown && reading.asked_bytes == kUnknown && reading.delay_ns == kUnknown);
        CHECK(counters.schedstat() == -1 && counters.io() == -1 && counters.stat() == -1);
    }
    CHECK(fcntl(foreign, F_GETFD) >= 0);
    CHECK(close(foreign) == 0);
}

void a_wait_is_written_with_the_step_before_it() {
    Ledger ledger;
    Counters counters(-1, -1, -1, 1);
    counters.last_got = Moment{1, 0, kUnknown, kUnknown, 1};
    Wait wait(ledger, 2, batch_letters);
    wait.number = 3;
    wait.epoch = 5;
    ledger.own_ns = 99;
    wait.enter(counters, 4);
    CHECK(wait.busy && !wait.nested() && counters.depth == 1);
    const std::int64_t ask = wait.ask();
    const std::int64_t got = wait.got();
    CHECK(!wait.busy && counters.depth == 0);
    CHECK(wait.record(8, 16, 1024, 1, 6));
    wait.done();
    CHECK(ledger.own_ns > 0);
    const std::vector<std::int64_t> row = only_row(ledger);
    const std::vector<std::int64_t> expected{3, 1, 5, 0, 0, 16, 1024, ask, got, 99, 6, 8, 4, 0};
    CHECK(std::vector<std::int64_t>(row.begin(), row.begin() + 14) == expected);
    CHECK(row[15] >= 0);  // it gave no core away meanwhile: it was on one, or in line
    CHECK(row[17] == kUnknown);
    CHECK(row[16] > 0);
    CHECK(wait.index == 1);
}

void work_that_the_wait_has_done_itself_counts_for_it() {
    Ledger ledger;
    Counters counters(-1, -1, -1, 1);
    Work work(ledger, 10, work_letters);
    Wait wait(ledger, 2, batch_letters);
    wait.work = &work;
    wait.index = 7;
    wait.enter(counters, kUnknown);
    wait.ask();
    work.begin(counters, false);
    work.collate(counters);
    work.done(counters);
    CHECK(work.record(0, 8, 1, 0));
    CHECK(only_row(ledger)[3] == 7);
    wait.got();
    CHECK(wait.record(7, 8, 0, 0, 0));
    CHECK(only_row(ledger)[14] == counters.fetch_end.cpu_ns - counters.fetch_begin.cpu_ns);
    CHECK(counters.last_got.cpu_ns == counters.fetch_end.cpu_ns);
}

}  // namespace

int main() {
    counters_are_read_from_the_kernels_text();
    what_does_not_read_like_a_counter_is_given_up_and_left_open();
    a_wait_is_written_with_the_step_before_it();
    work_that_the_wait_has_done_itself_counts_for_it();
}
