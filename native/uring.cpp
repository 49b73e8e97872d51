#include "uring.h"

#if defined(__linux__) && __has_include(<linux/io_uring.h>)
#define UNSTARVE_HAS_URING 1
#endif

#ifdef UNSTARVE_HAS_URING
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace unstarve {
namespace {

// Numbers of the system calls, the same on every architecture but Alpha; older headers lack them.
constexpr long setup_call = 425;
constexpr long enter_call = 426;

// From Linux 6.0: a read that is done interrupts nobody, and is noted in the rings during this thread's next system
// call, whichever that is. (With IORING_SETUP_DEFER_TASKRUN only a call with the queue's descriptor would do that.)
constexpr unsigned coop_taskrun = 1u << 8;
constexpr unsigned single_issuer = 1u << 12;

constexpr timespec pause{0, 200'000};

int set_up(unsigned depth, io_uring_params &params) {
    for (const unsigned flags : {single_issuer | coop_taskrun, 0u}) {
        params = {};
        params.flags = flags;
        const long fd = syscall(setup_call, depth, &params);
        if (fd >= 0 || errno != EINVAL) {
            return static_cast<int>(fd);
        }
    }
    return -1;
}

void *map(int fd, std::size_t bytes, std::uint64_t which) {
    void *const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd,
                              static_cast<off_t>(which));
    return memory == MAP_FAILED ? nullptr : memory;
}

template <typename T>
T *at(void *base, std::uint32_t offset) {
    return reinterpret_cast<T *>(static_cast<char *>(base) + offset);
}

}  // namespace

std::unique_ptr<Uring> Uring::make(unsigned depth) {
    io_uring_params params{};
    const int fd = set_up(depth, params);
    if (fd < 0) {
        return nullptr;
    }
    std::unique_ptr<Uring> ring(new Uring);
    ring->fd_ = fd;
    if ((params.features & IORING_FEAT_SINGLE_MMAP) == 0) {
        return nullptr;  // before Linux 5.4, which has no plain read either
    }
    ring->rings_bytes_ =
        std::max<std::size_t>(params.sq_off.array + params.sq_entries * sizeof(unsigned),
                              params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
    ring->entries_bytes_ = params.sq_entries * sizeof(io_uring_sqe);
    ring->rings_ = map(fd, ring->rings_bytes_, IORING_OFF_SQ_RING);
    ring->entries_ = map(fd, ring->entries_bytes_, IORING_OFF_SQES);
    if (ring->rings_ == nullptr || ring->entries_ == nullptr) {
        return nullptr;
    }
    ring->depth_ = depth;
    ring->submit_tail_ = at<unsigned>(ring->rings_, params.sq_off.tail);
    ring->submit_array_ = at<unsigned>(ring->rings_, params.sq_off.array);
    ring->submit_mask_ = *at<unsigned>(ring->rings_, params.sq_off.ring_mask);
    ring->done_head_ = at<unsigned>(ring->rings_, params.cq_off.head);
    ring->done_tail_ = at<unsigned>(ring->rings_, params.cq_off.tail);
    ring->done_mask_ = *at<unsigned>(ring->rings_, params.cq_off.ring_mask);
    ring->done_ = at<io_uring_cqe>(ring->rings_, params.cq_off.cqes);
    return ring;
}

Uring::~Uring() {
    settle();
    if (rings_ != nullptr) {
        munmap(rings_, rings_bytes_);
    }
    if (entries_ != nullptr) {
        munmap(entries_, entries_bytes_);
    }
    // If somebody has closed it, its number may stand for another file by now, which is not ours to close.
    if (syscall(enter_call, fd_, 0u, 0u, 0u, nullptr, 0) == 0) {
        close(fd_);
    }
}

void Uring::read(int fd, std::byte *to, std::uint32_t length, std::uint64_t offset, std::uint64_t tag) {
    const unsigned tail = *submit_tail_;
    const unsigned slot = tail & submit_mask_;
    io_uring_sqe &entry = static_cast<io_uring_sqe *>(entries_)[slot];
    std::memset(&entry, 0, sizeof entry);
    entry.opcode = IORING_OP_READ;
    entry.fd = fd;
    entry.addr = reinterpret_cast<std::uintptr_t>(to);
    entry.len = length;
    entry.off = offset;
    entry.user_data = tag;
    submit_array_[slot] = slot;
    __atomic_store_n(submit_tail_, tail + 1, __ATOMIC_RELEASE);
    ++queued_;
}

void Uring::handed_over(long count) {
    queued_ -= static_cast<unsigned>(count);
    started_ += static_cast<unsigned>(count);
}

void Uring::submit() {
    const long taken = queued_ == 0 ? 0 : syscall(enter_call, fd_, queued_, 0u, 0u, nullptr, 0);
    if (taken > 0) {
        handed_over(taken);
    }
}

bool Uring::wait_for_one() {
    for (;;) {
        const long taken = syscall(enter_call, fd_, queued_, 1u, IORING_ENTER_GETEVENTS, nullptr, 0);
        if (taken >= 0) {
            handed_over(taken);
            return true;
        }
        if (errno != EINTR && errno != EAGAIN && errno != EBUSY) {
            return false;
        }
    }
}

void Uring::settle() {
    while (started_ > 0 && __atomic_load_n(done_tail_, __ATOMIC_ACQUIRE) - *done_head_ < started_) {
        nanosleep(&pause, nullptr);  // a system call: see `coop_taskrun`
    }
}

bool Uring::take_back(std::uint64_t &tag) {
    if (queued_ == 0) {
        return false;
    }
    const unsigned tail = *submit_tail_ - 1;
    tag = static_cast<const io_uring_sqe *>(entries_)[tail & submit_mask_].user_data;
    __atomic_store_n(submit_tail_, tail, __ATOMIC_RELEASE);
    --queued_;
    return true;
}

bool Uring::take(std::uint64_t &tag, std::int32_t &result) {
    const unsigned head = *done_head_;
    if (head == __atomic_load_n(done_tail_, __ATOMIC_ACQUIRE)) {
        return false;
    }
    const io_uring_cqe &done = static_cast<const io_uring_cqe *>(done_)[head & done_mask_];
    tag = done.user_data;
    result = done.res;
    __atomic_store_n(done_head_, head + 1, __ATOMIC_RELEASE);
    --started_;
    return true;
}

}  // namespace unstarve

#else  // another system, or headers older than io_uring

namespace unstarve {

std::unique_ptr<Uring> Uring::make(unsigned) { return nullptr; }
Uring::~Uring() = default;
void Uring::read(int, std::byte *, std::uint32_t, std::uint64_t, std::uint64_t) {}
void Uring::submit() {}
bool Uring::wait_for_one() { return false; }
void Uring::settle() {}
bool Uring::take_back(std::uint64_t &) { return false; }
void Uring::handed_over(long) {}
bool Uring::take(std::uint64_t &, std::int32_t &) { return false; }

}  // namespace unstarve

#endif
