// Memory that storage writes into before the bytes go where they belong.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace unstarve {

// The size of a huge page on most machines. Storage writes into one as into a single stretch; memory of small
// pages is a list of as many stretches, and a virtual disk's host works such a list off piece by piece.
constexpr std::size_t huge_bytes = std::size_t{2} << 20;

// Memory for so many pieces at once, in huge pages where the system has them, touched only where it is used.
class Bounces {
  public:
    Bounces(std::size_t slots, std::uint64_t slot_bytes)
        : slots_(slots),
          slot_bytes_(slot_bytes),
          bytes_((slots * slot_bytes + huge_bytes - 1) / huge_bytes * huge_bytes),
          memory_(static_cast<std::byte *>(std::aligned_alloc(huge_bytes, bytes_))) {
        if (memory_ == nullptr) {
            throw std::bad_alloc();
        }
#ifdef MADV_HUGEPAGE
        ::madvise(memory_.get(), bytes_, MADV_HUGEPAGE);  // a kernel without them has the small ones
#endif
    }

    bool has(std::size_t slots, std::uint64_t slot_bytes) const {
        return slots <= slots_ && slot_bytes <= slot_bytes_;
    }
    std::size_t slots() const { return slots_; }
    std::uint64_t slot_bytes() const { return slot_bytes_; }
    std::byte *at(std::size_t slot) const { return memory_.get() + slot * slot_bytes_; }

  private:
    struct Free {
        void operator()(std::byte *memory) const { std::free(memory); }
    };

    std::size_t slots_;
    std::uint64_t slot_bytes_;
    std::size_t bytes_;
    std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace unstarve
