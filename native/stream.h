// What large batches need: copies that leave the cache alone, and memory in few pages.
#pragma once

#include <cstddef>

namespace unstarve {

// memcpy, except that `to` is written past the cache where the processor can; elsewhere it is memcpy.
// Another thread sees what was written only after finish_streaming() by the thread that wrote.
void copy_streaming(std::byte *to, const std::byte *from, std::size_t count);
void finish_streaming();

// Whether a batch of so many bytes should be written so, in pieces of this size. A smaller one, what it is copied
// from and the batch before it lie in a core's share of the cache together; shorter pieces gain nothing.
constexpr bool worth_streaming(std::size_t batch_bytes, std::size_t piece_bytes) {
    return batch_bytes >= std::size_t{4} << 20 && piece_bytes >= 1024;
}

// Asks for huge pages behind new memory that is about to be filled: being given 20 MB in small ones takes
// several times as long as copying so much. Does nothing for little memory, or where there are none.
void prefer_huge_pages(std::byte *memory, std::size_t count);

}  // namespace unstarve
