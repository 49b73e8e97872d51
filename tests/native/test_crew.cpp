#include "crew.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.h"
#include "forking.h"

// A helper that comes to a job of a caller who has left would find it on a stack that is gone.
extern "C" const char *__asan_default_options();
extern "C" const char *__asan_default_options() { return "detect_stack_use_after_return=1"; }

// A child begins threads of its own, which TSan refuses unless told otherwise.
extern "C" const char *__tsan_default_options();
extern "C" const char *__tsan_default_options() { return "die_after_fork=0"; }

namespace {

using unstarve::run_in_order;

void wait_until(const std::function<bool()> &true_at_last) {
    while (!true_at_last()) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

void every_number_is_done_once(unsigned threads) {
    std::vector<std::atomic<int>> done(500);
    run_in_order(threads, done.size(), [&](std::size_t at) { ++done[at]; });
    for (const std::atomic<int> &times : done) {
        CHECK(times == 1);
    }
}

void callers_at_the_same_time_get_all_of_theirs() {
    std::vector<std::thread> callers;
    for (unsigned at = 0; at < 6; ++at) {
        callers.emplace_back([at] {
            for (int i = 0; i < 30; ++i) {
                every_number_is_done_once(at % 3 + 1);
            }
        });
    }
    for (std::thread &caller : callers) {
        caller.join();
    }
}

// The second caller's numbers are begun only once none of the first's is left: its thread helped with those.
void who_came_first_is_served_first() {
    constexpr std::size_t count = 64;
    std::atomic<std::size_t> begun{0};
    std::atomic<bool> second_came{false};
    std::mutex mutex;
    std::vector<std::size_t> begun_of_first;
    std::thread first([&] {
        run_in_order(2, count, [&](std::size_t) {
            ++begun;
            wait_until([&] { return second_came.load(); });
        });
    });
    wait_until([&] { return begun == 2; });  // both threads of the crew are inside
    std::thread second([&] {
        run_in_order(2, count, [&](std::size_t) {
            const std::lock_guard<std::mutex> locked(mutex);
            begun_of_first.push_back(begun);
        });
    });
    wait_until([&] { return begun == 3; });  // the second caller's thread, at the first one's numbers
    second_came = true;
    first.join();
    second.join();
    CHECK(begun_of_first.size() == count);
    for (const std::size_t seen : begun_of_first) {
        CHECK(seen + 2 >= count);  // the other two may have taken the last ones just now
    }
}

void copying_does_not_wait_for_computing() {
    std::atomic<unsigned> begun{0};
    std::atomic<bool> copied{false};
    std::thread computing([&] {
        run_in_order(2, 4, [&](std::size_t) {
            ++begun;
            wait_until([&] { return copied.load(); });
        });
    });
    wait_until([&] { return begun == 2; });
    std::atomic<int> done{0};
    run_in_order(2, 50, [&](std::size_t) { ++done; }, unstarve::WorkKind::copying);
    CHECK(done == 50 && begun == 2);
    copied = true;
    computing.join();
    CHECK(begun == 4);
}

void whoever_throws_the_caller_hears_of_it() {
    for (const unsigned threads : {1u, 4u}) {
        std::atomic<int> done{0};
        CHECK_THROWS(run_in_order(threads, 100000,
                                  [&](std::size_t at) {
                                      ++done;
                                      if (at >= 10) {
                                          throw std::runtime_error("number 10");
                                      }
                                  }),
                     std::runtime_error);
        CHECK(done < 100);
        every_number_is_done_once(threads);
    }
}

void a_child_has_a_crew_as_well() {
    const pid_t child = fork_at_rest();
    if (child == 0) {
        every_number_is_done_once(4);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace

int main() {
    copying_does_not_wait_for_computing();
    run_in_order(4, 0, [](std::size_t) { CHECK(false); });
    every_number_is_done_once(1);
    every_number_is_done_once(4);
    callers_at_the_same_time_get_all_of_theirs();
    for (int i = 0; i < 20; ++i) {
        who_came_first_is_served_first();
        whoever_throws_the_caller_hears_of_it();
    }
    a_child_has_a_crew_as_well();
}
