// Threads that wait for storage: made once per process, shared by all callers, made anew after a fork.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

namespace unstarve {

// The numbers 0 … count - 1, each of which one of several threads takes.
class Pieces {
  public:
    explicit Pieces(std::size_t count) : count_(count) {}

    // False: none is left.
    bool take(std::size_t &piece) {
        piece = next_.fetch_add(1, std::memory_order_relaxed);
        return piece < count_;
    }

    // Nobody takes another one.
    void drop() { next_.store(count_, std::memory_order_relaxed); }

  private:
    const std::size_t count_;
    std::atomic<std::size_t> next_{0};
};

// Runs `work` on this thread and on up to `count - 1` threads of the pool; returns when all of them are out
// of it. Each call of `work` must take `pieces` until none is left: a thread that comes late finds nothing to
// do, and fewer threads than hoped for do the whole. If `work` throws, the other threads finish the pieces they
// have, the rest is dropped, and the first exception is thrown here.
void run_on_pool(unsigned count, Pieces &pieces, const std::function<void()> &work);

// Counts the thread that made it among those that share the cores, for as long as it lives.
class Caller {
  public:
    Caller();
    ~Caller();
    Caller(const Caller &) = delete;
    Caller &operator=(const Caller &) = delete;

    unsigned callers() const { return callers_; }  // this one included, when it came

  private:
    std::atomic<unsigned> &count_;
    unsigned callers_;
};

// How many times this process has been forked off with the pool in use: what a thread keeps for itself is its
// parent's if this has changed since.
unsigned fork_generation();

// Threads the pool has in this process now.
unsigned pool_size();

}  // namespace unstarve
