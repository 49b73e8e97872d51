#include "pool.h"

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

// Past this, more threads only queue at the same device.
constexpr unsigned max_threads = 64;

struct Job {
    Pieces &pieces;
    const std::function<void()> &work;
    unsigned wanted;               // helpers that have yet to come
    unsigned running = 0;          // helpers inside
    std::exception_ptr failure{};  // what was thrown first
};

class Pool {
  public:
    // The job lies on this stack: whatever happens, it leaves the queue and the helpers leave it before this ends.
    void run(unsigned count, Pieces &pieces, const std::function<void()> &work) {
        const unsigned helpers = std::min(count, max_threads + 1) - 1;
        Job job{pieces, work, helpers};
        {
            const std::lock_guard<std::mutex> locked(mutex_);
            grow(helpers);
            jobs_.push_back(&job);
        }
        for (unsigned i = 0; i < helpers; ++i) {
            wake_.notify_one();
        }
        std::exception_ptr failure = attempt(job);
        std::unique_lock<std::mutex> locked(mutex_);
        note(job, std::move(failure));
        // No piece is left: whoever has not come need not.
        const auto at = std::find(jobs_.begin(), jobs_.end(), &job);
        if (at != jobs_.end()) {
            jobs_.erase(at);
        }
        done_.wait(locked, [&job] { return job.running == 0; });
        locked.unlock();
        if (job.failure != nullptr) {
            std::rethrow_exception(std::move(job.failure));
        }
    }

    unsigned size() {
        const std::lock_guard<std::mutex> locked(mutex_);
        return threads_;
    }

    std::atomic<unsigned> callers{0};

  private:
    static std::exception_ptr attempt(Job &job) noexcept {
        try {
            job.work();
            return nullptr;
        } catch (...) {
            job.pieces.drop();
            return std::current_exception();
        }
    }

    static void note(Job &job, std::exception_ptr failure) {
        if (job.failure == nullptr) {
            job.failure = std::move(failure);
        }
    }

    void grow(unsigned wanted) {
        unsigned busy_or_promised = wanted;
        for (const Job *job : jobs_) {
            busy_or_promised += job->wanted;
        }
        busy_or_promised += running_;
        try {
            while (threads_ < std::min(busy_or_promised, max_threads)) {
                std::thread([this] { serve(); }).detach();
                ++threads_;
            }
        } catch (const std::system_error &) {
            // No more threads to be had: those that run, the caller at least, do all of it.
        } catch (const std::bad_alloc &) {
            // The same.
        }
    }

    [[noreturn]] void serve() {
        std::unique_lock<std::mutex> locked(mutex_);
        for (;;) {
            wake_.wait(locked, [this] { return !jobs_.empty(); });
            Job *const job = jobs_.front();
            if (--job->wanted == 0) {
                jobs_.pop_front();
            }
            ++job->running;
            ++running_;
            locked.unlock();
            std::exception_ptr failure = attempt(*job);
            locked.lock();
            note(*job, std::move(failure));
            --running_;
            if (--job->running == 0) {
                done_.notify_all();
            }
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::condition_variable done_;
    std::deque<Job *> jobs_;
    unsigned threads_ = 0;
    unsigned running_ = 0;
};

// Never destroyed: its threads sleep until the process ends. After a fork the child has none of them, and
// whatever state they left behind is left alone.
std::atomic<Pool *> the_pool{nullptr};
std::atomic<unsigned> generation{0};

void forget_in_child() {
    the_pool.store(nullptr);
    generation.fetch_add(1);
}

Pool &pool() {
    static const int watching_forks = pthread_atfork(nullptr, nullptr, &forget_in_child);
    (void)watching_forks;
    Pool *found = the_pool.load(std::memory_order_acquire);
    if (found == nullptr) {
        auto *const made = new Pool;
        if (the_pool.compare_exchange_strong(found, made, std::memory_order_acq_rel)) {
            return *made;
        }
        delete made;  // another thread was faster
    }
    return *found;
}

}  // namespace

void run_on_pool(unsigned count, Pieces &pieces, const std::function<void()> &work) {
    if (count <= 1) {
        work();
        return;
    }
    pool().run(count, pieces, work);
}

Caller::Caller() : count_(pool().callers), callers_(count_.fetch_add(1) + 1) {}

Caller::~Caller() { count_.fetch_sub(1); }

unsigned fork_generation() {
    pool();
    return generation.load();
}

unsigned pool_size() { return the_pool.load() == nullptr ? 0 : the_pool.load()->size(); }

}  // namespace unstarve
