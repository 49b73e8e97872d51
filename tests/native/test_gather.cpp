#include <stdexcept>
#include <thread>
#include <vector>

#include "check.h"
#include "gather.h"

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

void refuses_what_lies_outside() {
    const std::vector<std::byte> source = rows_of(4, 8);
    std::vector<std::byte> out(8);
    for (const std::int64_t bad : {std::int64_t{4}, std::int64_t{-5}, INT64_MAX, INT64_MIN}) {
        CHECK_THROWS(unstarve::gather({source.data(), 4, 8}, &bad, 1, out.data(), 1), std::out_of_range);
    }
}

void several_callers_share_a_source() {
    std::vector<std::thread> callers;
    for (int i = 0; i < 4; ++i) {
        callers.emplace_back(copies_the_rows_asked_for, std::size_t{100}, std::size_t{64}, 1u);
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
    copies_the_rows_asked_for(std::size_t{1} << 18, 64, 3);
    refuses_what_lies_outside();
    several_callers_share_a_source();
}
