#include "crew.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

namespace unstarve {
namespace {

// What others still work on is often done sooner than the kernel would wake the caller: about 20 µs.
constexpr unsigned looks_before_sleep = 500;

void look_again() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

struct Job {
    const std::function<void(std::size_t)> &work;
    std::size_t left;       // numbers nobody has taken; the highest goes last
    const std::size_t count;
    const unsigned threads;
    std::atomic<std::size_t> running{0};  // changed with the lock held
    std::exception_ptr failure{};

    std::size_t take() { return count - left--; }
};

class Crew {
  public:
    // The job lies on this stack: it leaves the queue with its last number, and this ends when nobody runs one.
    void run(unsigned threads, std::size_t count, const std::function<void(std::size_t)> &work) {
        Job job{work, count, count, threads};
        std::unique_lock<std::mutex> locked(mutex_);
        grow(threads - 1);
        jobs_.push_back(&job);
        for (std::size_t i = active_ + 1; i < std::min<std::size_t>(threads, count); ++i) {
            wake_.notify_one();
        }
        while (job.left != 0) {
            work_on(*jobs_.front(), locked);
        }
        if (!jobs_.empty()) {
            wake_.notify_one();  // this thread is free for another
        }
        locked.unlock();
        for (unsigned looks = 0; looks < looks_before_sleep && job.running != 0; ++looks) {
            look_again();
        }
        locked.lock();
        done_.wait(locked, [&job] { return job.running == 0; });
        locked.unlock();
        if (job.failure != nullptr) {
            std::rethrow_exception(std::move(job.failure));
        }
    }

  private:
    void work_on(Job &job, std::unique_lock<std::mutex> &locked) {
        const std::size_t number = job.take();
        leave_if_taken(job);
        ++job.running;
        ++active_;
        locked.unlock();
        std::exception_ptr failure;
        try {
            job.work(number);
        } catch (...) {
            failure = std::current_exception();
        }
        locked.lock();
        --active_;
        if (failure != nullptr) {
            job.failure = job.failure == nullptr ? failure : job.failure;
            job.left = 0;
            leave_if_taken(job);
        }
        if (--job.running == 0 && job.left == 0) {
            done_.notify_all();
        }
    }

    void leave_if_taken(Job &job) {
        const auto at = std::find(jobs_.begin(), jobs_.end(), &job);
        if (job.left == 0 && at != jobs_.end()) {
            jobs_.erase(at);
            if (!jobs_.empty()) {
                wake_.notify_all();  // the next may allow more threads
            }
        }
    }

    void grow(unsigned helpers) {
        try {
            while (helpers_ < helpers) {
                std::thread([this] { serve(); }).detach();
                ++helpers_;
            }
        } catch (const std::system_error &) {
            // No more threads to be had: those that run, the callers at least, do all of it.
        } catch (const std::bad_alloc &) {
            // The same.
        }
    }

    [[noreturn]] void serve() {
        std::unique_lock<std::mutex> locked(mutex_);
        for (;;) {
            wake_.wait(locked, [this] { return !jobs_.empty() && active_ < jobs_.front()->threads; });
            work_on(*jobs_.front(), locked);
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::condition_variable done_;
    std::deque<Job *> jobs_;  // those with numbers left
    unsigned helpers_ = 0;
    unsigned active_ = 0;
};

// Never destroyed: its threads sleep until the process ends. After a fork the child has none of them, and
// whatever state they left behind is left alone.
std::atomic<Crew *> crews[2]{};  // by kind

void forget_in_child() {
    for (std::atomic<Crew *> &crew : crews) {
        crew.store(nullptr);
    }
}

Crew &crew_of(WorkKind kind) {
    static const int watching_forks = pthread_atfork(nullptr, nullptr, &forget_in_child);
    (void)watching_forks;
    std::atomic<Crew *> &crew = crews[static_cast<std::size_t>(kind)];
    Crew *found = crew.load(std::memory_order_acquire);
    if (found == nullptr) {
        auto *const made = new Crew;
        if (crew.compare_exchange_strong(found, made, std::memory_order_acq_rel)) {
            return *made;
        }
        delete made;  // another thread was faster
    }
    return *found;
}

}  // namespace

void run_in_order(unsigned threads, std::size_t count, const std::function<void(std::size_t)> &work, WorkKind kind) {
    constexpr unsigned max_threads = 256;
    if (threads <= 1 || count == 0) {
        for (std::size_t number = 0; number < count; ++number) {
            work(number);
        }
        return;
    }
    crew_of(kind).run(std::min(threads, max_threads), count, work);
}

}  // namespace unstarve
