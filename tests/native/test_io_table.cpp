// The table of file reads: finds, counts, is bounded, survives many threads.
#include "io_table.h"

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

namespace {

using Table = unstarve::FileTable<64, 4096>;

std::uint32_t find(Table &table, const std::string &path) { return table.find(path.data(), path.size()); }

void a_path_keeps_its_entry() {
    static Table table;
    const std::uint32_t first = find(table, "/data/a");
    CHECK(first > 1);
    CHECK(find(table, "/data/b") != first);
    CHECK(find(table, "/data/a") == first);
}

void further_files_are_counted_by_folder_then_together() {
    static Table table;
    for (int at = 0; at < 1000; ++at) find(table, "/data/" + std::to_string(at));
    const std::uint32_t folder = find(table, "/data/new");
    CHECK(folder > 1);
    CHECK(find(table, "/data/newer") == folder);
    CHECK(find(table, "/data/0") != folder);
    for (int at = 0; at < 1000; ++at) find(table, "/data/" + std::to_string(at) + "/file");
    CHECK(table.entries() == 64);
    CHECK(find(table, "/elsewhere/file") == 1);
    CHECK(find(table, std::string(5000, 'x')) == 1);
}

void threads_agree_on_entries() {
    static Table table;
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; ++number) {
        threads.emplace_back([] {
            for (int at = 0; at < 2000; ++at) {
                unstarve::add(table[find(table, "/data/" + std::to_string(at % 8))].reads, 1);
            }
        });
    }
    for (std::thread &one : threads) one.join();
    std::uint64_t reads = 0;
    for (int at = 0; at < 8; ++at) {
        const std::uint64_t here = table[find(table, "/data/" + std::to_string(at))].reads;
        CHECK(here == 1000);
        reads += here;
    }
    CHECK(reads == 8000);
}

void a_child_counts_from_zero_and_keeps_the_paths() {
    static Table table;
    const std::uint32_t number = find(table, "/data/a");
    unstarve::add(table[number].bytes, 5);
    table.zero();
    CHECK(table[number].bytes == 0);
    CHECK(find(table, "/data/a") == number);
}

void program_files_are_no_data() {
    const auto is_program = [](const std::string &path) {
        return unstarve::is_program_file(path.c_str(), path.size());
    };
    for (const char *path : {"/proc/self/io", "/home/me/train.py", "/opt/lib/python3.11/os.py", "/usr/lib/libc.so.6",
                             "/venv/lib/python3.11/site-packages/torch/version.txt", "/dev/shm/torch_1"}) {
        CHECK(is_program(path));
    }
    for (const char *path : {"/data/a.jpg", "/home/me/weights.pth", "/mnt/a.npy", "/data/libraries/so"}) {
        CHECK(!is_program(path));
    }
}

}  // namespace

int main() {
    a_path_keeps_its_entry();
    further_files_are_counted_by_folder_then_together();
    threads_agree_on_entries();
    a_child_counts_from_zero_and_keeps_the_paths();
    program_files_are_no_data();
    std::puts("ok");
}
