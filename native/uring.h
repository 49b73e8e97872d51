// A queue of reads that the kernel works off by itself: io_uring by its system calls, no library needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace unstarve {

class Uring {
  public:
    // nullptr where the kernel has none or does not allow it here. For use by the calling thread alone.
    static std::unique_ptr<Uring> make(unsigned depth);
    ~Uring();
    Uring(const Uring &) = delete;
    Uring &operator=(const Uring &) = delete;

    // Queues a read; at most `depth` may be on their way. It starts with the next submit or wait_for_one.
    void read(int fd, std::byte *to, std::uint32_t length, std::uint64_t offset, std::uint64_t tag);

    // Hands over what is queued, as far as the kernel takes it.
    void submit();

    // Hands over what is queued and returns when at least one read is done. False: the kernel broke the queue.
    bool wait_for_one();

    // Takes one finished read: bytes read, or a negative errno. False: none is finished.
    bool take(std::uint64_t &tag, std::int32_t &result);

    unsigned depth() const { return depth_; }

  private:
    Uring() = default;

    int fd_ = -1;
    unsigned depth_ = 0;
    unsigned queued_ = 0;
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
