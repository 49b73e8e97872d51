#include "pool.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

// A helper that comes to a job of a caller who has left would find it on a stack that is gone.
extern "C" const char *__asan_default_options();
extern "C" const char *__asan_default_options() { return "detect_stack_use_after_return=1"; }

namespace {

using unstarve::Pieces;
using unstarve::run_on_pool;

constexpr unsigned threads = 4;
constexpr std::size_t endless = std::size_t{1} << 62;

void wait_until(const std::function<bool()> &true_at_last) {
    while (!true_at_last()) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

void every_piece_is_done_once() {
    std::vector<std::atomic<int>> done(1000);
    Pieces pieces(done.size());
    run_on_pool(threads, pieces, [&] {
        for (std::size_t piece; pieces.take(piece);) {
            ++done[piece];
        }
    });
    for (const std::atomic<int> &times : done) {
        CHECK(times == 1);
    }
}

enum class Throws { caller, helpers, all };

// Nobody leaves the work before the caller and a helper have come, so that those who throw do so beside others.
void whoever_throws_the_caller_hears_of_it(Throws who) {
    const std::thread::id caller = std::this_thread::get_id();
    std::atomic<bool> caller_came{false};
    std::atomic<bool> helper_came{false};
    std::atomic<int> inside{0};
    Pieces pieces(endless);  // dropped: this comes to an end
    CHECK_THROWS(run_on_pool(threads, pieces,
                             [&] {
                                 const bool is_caller = std::this_thread::get_id() == caller;
                                 ++inside;
                                 (is_caller ? caller_came : helper_came) = true;
                                 wait_until([&] { return caller_came && helper_came; });
                                 if (who == Throws::all || is_caller == (who == Throws::caller)) {
                                     --inside;
                                     throw std::bad_alloc();
                                 }
                                 for (std::size_t piece; pieces.take(piece);) {
                                 }
                                 --inside;
                             }),
                 std::bad_alloc);
    CHECK(inside == 0);
    std::size_t piece = 0;
    CHECK(!pieces.take(piece));
}

void helpers_that_come_late_find_no_job_of_a_caller_who_has_left() {
    for (int i = 0; i < 20; ++i) {
        Pieces pieces(1);
        CHECK_THROWS(run_on_pool(64, pieces, [&] { throw std::runtime_error("at once"); }), std::runtime_error);
    }
    every_piece_is_done_once();
}

void a_thread_alone_throws_as_well() {
    Pieces pieces(1);
    CHECK_THROWS(run_on_pool(1, pieces, [] { throw std::bad_alloc(); }), std::bad_alloc);
}

void the_exception_is_the_one_that_was_thrown() {
    Pieces pieces(endless);
    std::string message;
    try {
        run_on_pool(threads, pieces, [&] {
            for (std::size_t piece; pieces.take(piece);) {
                if (piece == 1000) {
                    throw std::runtime_error("piece 1000");
                }
            }
        });
    } catch (const std::runtime_error &error) {
        message = error.what();
    }
    CHECK(message == "piece 1000");
}

void callers_do_not_hear_of_what_others_throw() {
    std::vector<std::thread> callers;
    for (int at = 0; at < 6; ++at) {
        callers.emplace_back([at] {
            for (int i = 0; i < 30; ++i) {
                if (at % 2 == 0) {
                    every_piece_is_done_once();
                } else {
                    Pieces pieces(endless);
                    CHECK_THROWS(run_on_pool(threads, pieces, [] { throw std::bad_alloc(); }), std::bad_alloc);
                }
            }
        });
    }
    for (std::thread &caller : callers) {
        caller.join();
    }
}

}  // namespace

int main() {
    for (int i = 0; i < 30; ++i) {
        for (const Throws who : {Throws::caller, Throws::helpers, Throws::all}) {
            whoever_throws_the_caller_hears_of_it(who);
            every_piece_is_done_once();
        }
    }
    helpers_that_come_late_find_no_job_of_a_caller_who_has_left();
    a_thread_alone_throws_as_well();
    the_exception_is_the_one_that_was_thrown();
    callers_do_not_hear_of_what_others_throw();
    CHECK(unstarve::pool_size() > 0);
}
