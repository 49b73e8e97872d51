// A queue of reads that the kernel works off by itself: io_uring by its system calls, no library needed.
//
// A training that closes descriptors it does not know closes the queue's. Nothing more can be handed over then, but
// the mapped rings keep the queue alive: what the kernel had taken goes on, and is noted in the rings when it is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace unstarve {

class Uring {
  public:
    // nullptr where the kernel has none or does not allow it here. For use by the calling thread alone.
    static std::unique_ptr<Uring> make(unsigned depth);
    // Waits for the reads that the kernel has taken: it would write into memory that is no longer ours.
    ~Uring();
    Uring(const Uring &) = delete;
    Uring &operator=(const Uring &) = delete;

    // Queues a read; at most `depth` may be on their way. It starts with the next submit or wait_for_one.
    void read(int fd, std::byte *to, std::uint32_t length, std::uint64_t offset, std::uint64_t tag);

    // Hands over what is queued, as far as the kernel takes it.
    void submit();

    // Hands over what is queued and returns when at least one read is done. False: the descriptor was closed.
    bool wait_for_one();

    // Waits for all reads that were handed over, without the descriptor; `take` gives them.
    void settle();

    // Takes back one read that was not handed over. False: there is none.
    bool take_back(std::uint64_t &tag);

    // Takes one finished read: bytes read, or a negative errno. False: none is finished.
    bool take(std::uint64_t &tag, std::int32_t &result);

    unsigned depth() const { return depth_; }

  private:
    Uring() = default;
    void handed_over(long count);

    int fd_ = -1;
    unsigned depth_ = 0;
    unsigned queued_ = 0;   // not handed over yet
    unsigned started_ = 0;  // handed over, and not taken yet
    void *rings_ = nullptr;
    std::size_t rings_bytes_ = 0;
    void *entries_ = nullptr;
    std::size_t entries_bytes_ = 0;
    unsigned *submit_tail_ = nullptr;
    unsigned *submit_array_ = nullptr;
    unsigned submit_mask_ = 0;
    unsigned *done_head_ = nullptr;
    unsigned *done_tail_ = nullptr;
    unsigned done_mask_ = 0;
    void *done_ = nullptr;
};

}  // namespace unstarve
