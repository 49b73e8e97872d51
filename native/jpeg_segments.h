// The coded data of a JPEG, up to the next marker, as bits can be read from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jpeg_bits.h"

namespace unstarve {

// In the file a zero follows each byte of 0xFF. One pass over a segment takes these out, so that reading bits need not
// look for them.
class CodedSegments {
  public:
    // From `coded` to `end` of the file. Throws Unusual where there is no marker at the end of the segment.
    void start(const std::uint8_t *coded, const std::uint8_t *end);

    // Goes on behind the marker that says so; throws Unusual where another is there.
    void restart();

    Bits bits() const { return Bits(bytes_.data()); }
    std::uint64_t bit_count() const { return bit_count_; }
    std::size_t kept_bytes() const { return bytes_.capacity(); }

  private:
    void read_segment();

    const std::uint8_t *at_ = nullptr;
    const std::uint8_t *end_ = nullptr;
    unsigned restarts_ = 0;
    std::uint64_t bit_count_ = 0;
    std::vector<std::uint8_t> bytes_;
};

}  // namespace unstarve
