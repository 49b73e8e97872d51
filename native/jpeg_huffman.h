// Huffman codes of a JPEG, made ready to be read quickly.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "jpeg_bits.h"

namespace unstarve {

// Thrown where a JPEG is damaged, or is not as nearly all of them are: libjpeg-turbo then says what it is.
struct Unusual {};

// Where each number of a block, in the order of the file, has its place; 16 more for runs that lead out of it.
inline constexpr std::uint8_t natural_order[64 + 16] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13,
    6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31,
    39, 46, 53, 60, 61, 54, 47, 55, 62, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63};

// As a file writes it: how many codes there are of 1–16 bits, and what they mean.
struct HuffmanCode {
    std::array<std::uint8_t, 16> counts{};
    std::array<std::uint8_t, 256> symbols{};

    bool operator==(const HuffmanCode &other) const { return counts == other.counts && symbols == other.symbols; }
};

// What the next bits say: how many to drop, a run of zeros, then either the value that is not 0 or, where it is too
// long to be seen at once, its size. No bits to drop: the code itself is too long.
class Look {
  public:
    Look() = default;
    Look(unsigned bits, unsigned run, unsigned size, std::int32_t value)
        : packed_(bits | run << 8 | size << 12 | static_cast<std::uint32_t>(value) << 16) {}
    unsigned bits() const { return packed_ & 0xFF; }
    unsigned run() const { return packed_ >> 8 & 15; }
    unsigned size() const { return packed_ >> 12 & 15; }
    std::int32_t value() const { return static_cast<std::int32_t>(packed_) >> 16; }

  private:
    std::uint32_t packed_ = 0;
};

// The code bit by bit.
class LongCodes {
  public:
    void make(const HuffmanCode &code);  // throws Unusual for one that cannot be

    // Of 16 bits at least. In two steps, so that no function is given bits that could else live in registers.
    unsigned take_symbol(Bits &bits) const {
        const Found found = find(bits.top(16));
        bits.drop(found.length);
        return found.symbol;
    }

  private:
    struct Found {
        unsigned symbol;
        unsigned length;
    };
    Found find(std::uint32_t sixteen_bits) const;

    std::array<std::uint32_t, 17> end_{};    // behind the last code of each length
    std::array<std::int32_t, 17> offset_{};  // from a code to its symbol's place
    std::array<std::uint8_t, 256> symbols_{};
};

// The first number of a block, as a difference to that of the block before.
class DcTable {
  public:
    void make(const HuffmanCode &code);

    // Refills; 25 bits are left at least.
    std::int32_t take(Bits &bits) const {
        bits.refill();
        const Look look = looks_[bits.top(look_bits)];
        bits.drop(look.bits());
        const unsigned size = look.bits() != 0 ? look.size() : long_codes_.take_symbol(bits);
        return size == 0 ? look.value() : bits.take_value(size);
    }

  private:
    static constexpr unsigned look_bits = 10;
    std::array<Look, 1 << look_bits> looks_{};
    LongCodes long_codes_;
};

// The other 63 numbers. Most codes are short, and so are their values: one look finds both.
class AcTable {
  public:
    void make(const HuffmanCode &code);

    // Writes the numbers that are not 0 into `block`, in natural order, and returns the place behind the last, or 1.
    // 25 bits must be there.
    unsigned take(Bits &bits, std::int16_t *block) const;

    // Reads as far as `take` does.
    void skip(Bits &bits) const;

  private:
    struct Coded {
        unsigned run;
        unsigned size;
        bool is_end() const { return size == 0 && run != 15; }
    };
    Coded take_code(Bits &bits, Look look) const;
    void make_skips();

    static constexpr unsigned look_bits = 10;
    std::array<Look, 1 << look_bits> looks_{};

    // Several numbers at once, of up to 16 bits in all: 5 bits how many to drop, 7 how many places to go on, 1 whether
    // the block ends there. Such an end is counted as a place, so that a sum tells whether all of it is within the block.
    static constexpr unsigned skip_bits = 11;
    static constexpr unsigned most_skipped = 16;
    static constexpr unsigned skip_ends = 1 << 12;
    static constexpr unsigned skip_cannot = 127 << 5;
    std::array<std::uint16_t, 1 << skip_bits> skips_{};
    LongCodes long_codes_;
};

inline unsigned AcTable::take(Bits &bits, std::int16_t *block) const {
    unsigned at = 1;
    unsigned end = 1;
    unsigned looks = 25 / look_bits;  // that can be had without a refill
    for (;;) {
        Look look;
        for (; looks > 0; --looks) {
            look = looks_[bits.top(look_bits)];
            if (look.value() == 0) {
                break;
            }
            bits.drop(look.bits());
            at += look.run();
            block[natural_order[at]] = static_cast<std::int16_t>(look.value());
            end = ++at;
            if (at >= 64) {
                break;
            }
        }
        if (at >= 64) {
            break;
        }
        bits.refill();
        if (looks > 0) {
            const Coded coded = take_code(bits, look);
            if (coded.is_end()) {
                break;
            }
            at += coded.run;
            if (coded.size != 0) {
                block[natural_order[at]] = static_cast<std::int16_t>(bits.take_value(coded.size));
                end = at + 1;
            }
            if (++at >= 64) {
                break;
            }
            bits.refill();
        }
        looks = 56 / look_bits;
    }
    if (at > 64) {
        throw Unusual();
    }
    return end;
}

inline void AcTable::skip(Bits &bits) const {
    unsigned at = 1;
    unsigned looks = 25 / most_skipped;
    for (;;) {
        unsigned some = 0;
        for (; looks > 0; --looks) {
            some = skips_[bits.top(skip_bits)];
            if (at + (some >> 5) > 64) {
                break;
            }
            at += some >> 5;
            bits.drop(some & 31);
        }
        if (looks > 0) {
            if ((some & skip_ends) != 0 && at + (some >> 5 & 127) <= 64) {
                bits.drop(some & 31);
                return;
            }
            if (at >= 64) {
                break;
            }
            bits.refill();
            const Look look = looks_[bits.top(look_bits)];
            const Coded coded = take_code(bits, look);
            if (coded.is_end() && look.value() == 0) {
                return;
            }
            bits.drop(coded.size);
            at += coded.run + 1;
        }
        bits.refill();
        looks = 56 / most_skipped;
    }
    if (at > 64) {
        throw Unusual();
    }
}

// The code of a number, and its value where that is in the look, dropped.
inline AcTable::Coded AcTable::take_code(Bits &bits, Look look) const {
    if (look.bits() != 0) {
        bits.drop(look.bits());
        return {look.run(), look.size()};
    }
    const unsigned symbol = long_codes_.take_symbol(bits);
    return {symbol >> 4, symbol & 15};
}

}  // namespace unstarve
