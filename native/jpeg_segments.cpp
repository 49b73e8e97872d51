#include "jpeg_segments.h"

#include <algorithm>
#include <cstring>

#include "jpeg_huffman.h"

namespace unstarve {

void CodedSegments::start(const std::uint8_t *coded, const std::uint8_t *end) {
    at_ = coded;
    end_ = end;
    restarts_ = 0;
    read_segment();
}

void CodedSegments::restart() {
    const unsigned expected = 0xD0 + restarts_++ % 8;
    if (at_[1] != expected) {  // there are two bytes: a segment ends with a marker
        throw Unusual();
    }
    at_ += 2;
    read_segment();
}

// Leaves at_ at the marker behind it.
void CodedSegments::read_segment() {
    std::size_t size = 0;
    for (;;) {
        const auto left = static_cast<std::size_t>(end_ - at_);
        const void *const found = std::memchr(at_, 0xFF, left);
        const auto *const next = static_cast<const std::uint8_t *>(found);
        if (next == nullptr || end_ - next < 2) {
            throw Unusual();
        }
        const std::size_t count = static_cast<std::size_t>(next - at_) + (next[1] == 0 ? 1 : 0);
        if (bytes_.size() < size + count + bits_slack) {
            bytes_.resize(std::max(size + count + bits_slack, size * 2));
        }
        std::memcpy(bytes_.data() + size, at_, count);
        size += count;
        at_ = next;
        if (next[1] != 0) {
            break;
        }
        at_ += 2;
    }
    std::memset(bytes_.data() + size, 0, bits_slack);
    bit_count_ = std::uint64_t{size} * 8;
}

}  // namespace unstarve
