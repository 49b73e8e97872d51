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

// The code bit by bit, for what is too long for a table. A symbol and the length of its code.
struct Symbol {
    unsigned symbol;
    unsigned length;
};
class LongCodes {
  public:
    void make(const HuffmanCode &code);  // throws Unusual for one that cannot be
    Symbol find(std::uint32_t sixteen_bits) const;

  private:
    std::array<std::uint32_t, 17> end_{};    // behind the last code of each length
    std::array<std::int32_t, 17> offset_{};  // from a code to its symbol's place
    std::array<std::uint8_t, 256> symbols_{};
};

// The first number of a block, as a difference to that of the block before.
class DcTable {
  public:
    void make(const HuffmanCode &code);
    std::int32_t take(Bits &bits) const;  // refills

  private:
    static constexpr unsigned look_bits = 9;
    std::array<std::uint32_t, 1 << look_bits> looks_{};
    LongCodes long_codes_;
};

// The other 63 numbers. Most codes are short, and so are their values: one look finds both.
class AcTable {
  public:
    void make(const HuffmanCode &code);

    // Writes the numbers that are not 0 into `block`, in natural order, and returns the place behind the last.
    unsigned take(Bits &bits, std::int16_t *block) const;

    // Reads as far as `take` does.
    void skip(Bits &bits) const;

  private:
    static constexpr unsigned look_bits = 10;
    static constexpr unsigned skip_bits = 11;
    struct Coded {
        unsigned run;
        unsigned size;
    };
    Coded take_code(Bits &bits, std::uint32_t look) const;
    unsigned skip_one(Bits &bits, unsigned at) const;
    void make_skips();

    std::array<std::uint32_t, 1 << look_bits> looks_{};
    std::array<std::uint16_t, 1 << skip_bits> skips_{};  // several numbers at once
    LongCodes long_codes_;
};

}  // namespace unstarve
