#include "ledger.h"

#include <cstring>
#include <stdexcept>
#include <thread>

#include "check.h"

using unstarve::Layout;
using unstarve::Ledger;

namespace {

void rows_are_packed_little_endian_without_gaps() {
    Ledger ledger;
    const Layout layout(2, "HIiqQ");
    CHECK(layout.fields() == 5);
    const std::int64_t values[] = {0x0102, 0x03040506, -2, -3, 7};
    CHECK(layout.append(values, ledger));
    const auto taken = ledger.take();
    CHECK(taken.size() == 1 && taken[0].first == 2);
    const char expected[] = "\x02\x01\x06\x05\x04\x03\xfe\xff\xff\xff\xfd\xff\xff\xff\xff\xff\xff\xff\x07\0\0\0\0\0\0\0";
    CHECK(taken[0].second.size() == 26);
    CHECK(std::memcmp(taken[0].second.data(), expected, 26) == 0);
    CHECK(ledger.take().empty());
}

void what_does_not_fit_is_refused_as_a_whole() {
    Ledger ledger;
    const Layout layout(2, "HIiQ");
    const std::int64_t largest[] = {65535, 4294967295, 2147483647, 9223372036854775807};
    CHECK(layout.append(largest, ledger));
    const std::int64_t bad[][4] = {{65536, 0, 0, 0},       {-1, 0, 0, 0},           {0, 4294967296, 0, 0}, {0, -1, 0, 0},
                                   {0, 0, 2147483648, 0}, {0, 0, -2147483649, 0}, {0, 0, 0, -1}};
    for (const auto &values : bad) {
        CHECK(!layout.append(values, ledger));
    }
    CHECK(ledger.take()[0].second.size() == 18);
    CHECK_THROWS(Layout(2, "Hx"), std::invalid_argument);
    CHECK_THROWS(Layout(2, std::string(33, 'q')), std::invalid_argument);
}

void several_threads_lose_no_row() {
    Ledger ledger;
    const Layout layout(2, "q");
    const auto write = [&] {
        for (std::int64_t value = 0; value < 1000; ++value) {
            layout.append(&value, ledger);
        }
    };
    std::thread other(write);
    std::size_t bytes = 0;
    for (int round = 0; round < 10; ++round) {
        for (const auto &[kind, rows] : ledger.take()) {
            bytes += rows.size();
        }
    }
    write();
    other.join();
    for (const auto &[kind, rows] : ledger.take()) {
        bytes += rows.size();
    }
    CHECK(bytes == 2000 * sizeof(std::int64_t));
}

}  // namespace

int main() {
    rows_are_packed_little_endian_without_gaps();
    what_does_not_fit_is_refused_as_a_whole();
    several_threads_lose_no_row();
}
