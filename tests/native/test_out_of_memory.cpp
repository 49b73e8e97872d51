// Whichever allocation fails, a call either succeeds or throws std::bad_alloc, and leaves everything usable.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "cutting.h"
#include "formats.h"
#include "reader.h"

namespace {

std::atomic<long> left{-1};  // allocations before the one that fails; negative: none does

}  // namespace

void *operator new(std::size_t bytes) {
    void *const memory = left.fetch_sub(1) == 0 ? nullptr : std::malloc(bytes);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, std::size_t) noexcept { std::free(memory); }

namespace {

std::string folder;

std::string write_file(const std::string &name, const std::string &data) {
    const std::string path = folder + "/" + name;
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK(write(fd, data.data(), data.size()) == static_cast<ssize_t>(data.size()));
    fsync(fd);
    close(fd);
    return path;
}

// Calls it again and again: first without memory for its first allocation, then for its second, and so on.
// `after` is called each time, whether it threw or not.
void each_allocation_fails_once(const std::function<void()> &call, const std::function<void()> &after) {
    bool any_failed = false;
    for (long at = 0;; ++at) {
        left = at;
        bool failed = false;
        try {
            call();
        } catch (const std::bad_alloc &) {
            failed = true;
        }
        const bool all_were_had = left.exchange(-1) >= 0;
        after();
        any_failed |= failed;
        if (all_were_had) {
            CHECK(!failed);
            break;
        }
    }
    CHECK(any_failed);
}

const unstarve::How hows[] = {{false, 0, 4, true}, {true, 8, 1, true}, {true, 8, 4, true}, {true, 4, 4, false}};

// Memory is its owner's again when a read has thrown, though others were on their way.
void reads_leave_nothing_behind() {
    constexpr std::size_t bytes = 6'000'000;  // more pieces than are read at once
    constexpr std::size_t room = 6'000'640;  // aligned: most of it is read in place
    static_assert(room % 4096 == 0);
    const std::string data(bytes, 'u');
    const std::string path = write_file("data", data);
    const std::string missing = folder + "/missing";
    const std::vector<std::byte> untouched(room, std::byte{0xee});
    auto *const memory = static_cast<std::byte *>(std::aligned_alloc(4096, room));
    std::vector<unstarve::Read> reads{{path.c_str(), -1, 0, bytes, memory, -1, -1}};
    for (int i = 0; i < 8; ++i) {
        reads.push_back({missing.c_str(), -1, 0, 1, memory, -1, -1});
    }
    for (const unstarve::How &how : hows) {
        each_allocation_fails_once([&] { CHECK(unstarve::read_all(reads, how).failures.size() == 8); },
                                   [&] {
                                       std::memset(memory, 0xee, room);
                                       std::this_thread::sleep_for(std::chrono::milliseconds(2));
                                       CHECK(std::memcmp(memory, untouched.data(), room) == 0);
                                       CHECK(unstarve::read_all({reads[0]}, how).failures.empty());
                                       CHECK(std::memcmp(memory, data.data(), bytes) == 0);
                                   });
    }
    std::free(memory);
}

void layouts_leave_nothing_behind() {
    const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
    const std::string padded = header + std::string(117 - header.size(), ' ') + "\n";
    const std::string npy = std::string("\x93NUMPY\x01\x00\x76\x00", 10) + padded + std::string(24, '\1');
    const std::string path = write_file("array.npy", npy);
    const std::vector<unstarve::Question> questions(20, {path.c_str(), unstarve::Format::npy});
    const auto found_in = [&](unsigned threads) {
        std::size_t found = 0;
        for (const unstarve::Answer &answer : unstarve::find_layouts(questions, false, threads)) {
            found += answer.found == unstarve::Found::layout ? 1 : 0;
        }
        return found;
    };
    for (const unsigned threads : {1u, 4u}) {
        each_allocation_fails_once([&] { CHECK(found_in(threads) + 1 >= questions.size()); },
                                   [&] { CHECK(found_in(threads) == questions.size()); });
    }
}

void images_leave_nothing_behind() {
    const std::string long_reason(100, 'r');
    const auto cut = [&](unsigned threads) {
        const std::vector<unstarve::Result> results =
            unstarve::for_each_image(20, threads, [&](std::size_t at, unstarve::Scratch &) -> unstarve::Outcome {
                if (at % 2 == 0) {
                    throw unstarve::ImageError(long_reason);
                }
                return unstarve::Outcome::decoded;
            });
        CHECK(results.size() == 20);
    };
    for (const unsigned threads : {1u, 4u}) {
        each_allocation_fails_once([&] { cut(threads); }, [&] { cut(threads); });
    }
}

}  // namespace

int main() {
    char name[] = "test_out_of_memory_XXXXXX";
    CHECK(mkdtemp(name) != nullptr);
    folder = name;
    reads_leave_nothing_behind();
    layouts_leave_nothing_behind();
    images_leave_nothing_behind();
    CHECK(std::system(("rm -rf '" + folder + "'").c_str()) == 0);
}
