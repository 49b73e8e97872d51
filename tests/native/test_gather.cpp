#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.h"
#include "forking.h"
#include "gather.h"
#include "stream.h"

namespace {

std::vector<std::byte> rows_of(std::size_t count, std::size_t row_bytes) {
    std::vector<std::byte> data(count * row_bytes);
    for (std::size_t i = 0; i < data.size(); ++i) {
        data[i] = static_cast<std::byte>(i / row_bytes * 7 + i % row_bytes);
    }
    return data;
}

void copies_the_rows_asked_for(std::size_t row_bytes, std::size_t batch, unsigned threads) {
    const std::size_t count = 37;
    const std::vector<std::byte> source = rows_of(count, row_bytes);
    std::vector<std::int64_t> index(batch);
    for (std::size_t i = 0; i < batch; ++i) {
        index[i] = static_cast<std::int64_t>(i * 11 % count) - (i % 2 != 0 ? static_cast<std::int64_t>(count) : 0);
    }
    std::vector<std::byte> out(batch * row_bytes);
    unstarve::gather({source.data(), count, row_bytes}, index.data(), batch, out.data(), threads);
    for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t row = i / row_bytes * 11 % count;
        CHECK(out[i] == source[row * row_bytes + i % row_bytes]);
    }
}

// Large batches of long rows are written past the cache, in pieces that begin anywhere.
void large_batches_are_written_from_their_first_byte_to_their_last() {
    const std::size_t count = 300;
    for (const std::size_t row_bytes : {std::size_t{20'000}, std::size_t{20'001}, std::size_t{20'063}}) {
        const std::vector<std::byte> source = rows_of(count, row_bytes);
        std::vector<std::int64_t> index(count);
        for (std::size_t i = 0; i < count; ++i) {
            index[i] = static_cast<std::int64_t>(count - 1 - i);
        }
        for (const std::size_t offset : {0, 37}) {
            std::vector<std::byte> out(count * row_bytes + 128, std::byte{0xA5});
            std::byte *const first = out.data() + offset;
            unstarve::gather({source.data(), count, row_bytes}, index.data(), count, first, 2);
            for (std::size_t i = 0; i < count; ++i) {
                const std::byte *const row = source.data() + (count - 1 - i) * row_bytes;
                CHECK(std::equal(row, row + row_bytes, first + i * row_bytes));
            }
            for (std::byte *after = first + count * row_bytes; after < out.data() + out.size(); ++after) {
                CHECK(*after == std::byte{0xA5});
            }
        }
    }
}

void huge_pages_change_nothing_in_memory() {
    std::vector<std::byte> memory(std::size_t{9} << 20, std::byte{7});
    unstarve::prefer_huge_pages(memory.data() + 1, memory.size() - 1);
    unstarve::prefer_huge_pages(memory.data(), 10);
    for (const std::byte value : memory) {
        CHECK(value == std::byte{7});
    }
}

#ifndef __SANITIZE_THREAD__  // which does not follow a process with threads through a fork
void a_child_has_threads_of_its_own() {
    const pid_t child = fork_at_rest();
    if (child == 0) {
        copies_the_rows_asked_for(std::size_t{1} << 16, 64, 2);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}
#endif

void refuses_what_lies_outside() {
    const std::vector<std::byte> source = rows_of(4, 8);
    std::vector<std::byte> out(8);
    for (const std::int64_t bad : {std::int64_t{4}, std::int64_t{-5}, INT64_MAX, INT64_MIN}) {
        CHECK_THROWS(unstarve::gather({source.data(), 4, 8}, &bad, 1, out.data(), 1), std::out_of_range);
    }
}

void rows_may_overlap_in_the_source() {
    for (const std::size_t row_bytes : {1, 4, 16, 100, 4096}) {
        const std::vector<std::byte> source = rows_of(3, row_bytes);
        const std::vector<std::int64_t> starts{0, static_cast<std::int64_t>(2 * row_bytes), 1};
        std::vector<std::byte> out(starts.size() * row_bytes);
        unstarve::gather({source.data(), source.size() - row_bytes + 1, row_bytes, 1}, starts.data(), starts.size(),
                         out.data(), 1);
        for (std::size_t i = 0; i < starts.size(); ++i) {
            CHECK(std::memcmp(out.data() + i * row_bytes, source.data() + starts[i], row_bytes) == 0);
        }
    }
}

void several_callers_share_a_source() {
    std::vector<std::thread> callers;
    for (const std::size_t row_bytes : {100, 4096, 1 << 16, 1 << 16}) {
        callers.emplace_back(copies_the_rows_asked_for, row_bytes, std::size_t{64}, 3u);
    }
    for (std::thread &caller : callers) {
        caller.join();
    }
}

}  // namespace

int main() {
    for (const std::size_t row_bytes : {1, 2, 3, 4, 8, 16, 100, 4096}) {
        copies_the_rows_asked_for(row_bytes, 64, 1);
    }
    copies_the_rows_asked_for(std::size_t{1} << 17, 64, 3);
    large_batches_are_written_from_their_first_byte_to_their_last();
    huge_pages_change_nothing_in_memory();
#ifndef __SANITIZE_THREAD__
    a_child_has_threads_of_its_own();
#endif
    refuses_what_lies_outside();
    rows_may_overlap_in_the_source();
    several_callers_share_a_source();
}
