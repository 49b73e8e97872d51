// The coded bits of a JPEG, 56 or more at hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace unstarve {

// A number of 1–15 bits as JPEG writes it: those that begin with 0 are negative.
inline std::int32_t signed_number(std::uint32_t read, unsigned size) {
    const auto number = static_cast<std::int32_t>(read);
    return number < 1 << (size - 1) ? number - (1 << size) + 1 : number;
}

// Reads eight bytes at a time, past the end too: whoever makes one leaves `bits_slack` bytes behind the last, and
// looks at `bits_read` at least after each six blocks of 8×8.
class Bits {
  public:
    Bits() = default;
    explicit Bits(const std::uint8_t *from) : from_(from), at_(from) {}

    // After this, 56 bits at least are there.
    void refill() {
        std::uint64_t eight;
        std::memcpy(&eight, at_, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        eight = __builtin_bswap64(eight);
#endif
        // What is not counted of the last eight bytes is there already, and comes once more: it is the same.
        bits_ |= eight >> count_;
        at_ += (63 - count_) >> 3;
        count_ |= 56;
    }

    // The next 1–56 bits, which stay.
    std::uint32_t top(unsigned count) const { return static_cast<std::uint32_t>(bits_ >> (64 - count)); }

    void drop(unsigned count) {
        bits_ <<= count;
        count_ -= count;
    }

    std::int32_t take_value(unsigned size) {
        const std::uint32_t read = top(size);
        drop(size);
        return signed_number(read, size);
    }

    std::uint64_t bits_read() const { return static_cast<std::uint64_t>(at_ - from_) * 8 - count_; }

  private:
    const std::uint8_t *from_ = nullptr;
    const std::uint8_t *at_ = nullptr;
    std::uint64_t bits_ = 0;
    unsigned count_ = 0;
};

// A block has 64 numbers, each of 16 bits of code and 15 bits of value at most; bytes are read eight at once and ahead.
constexpr std::size_t bits_slack = 6 * 64 * 4 + 16;

}  // namespace unstarve
