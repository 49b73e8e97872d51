#include "jpeg_huffman.h"

#include <algorithm>
#include <numeric>

namespace unstarve {
namespace {

// A look, from its lowest bit on: 8 bits how many bits to drop, 4 the run of zeros, 4 the size of a value that is not
// part of the look, 16 the value that is. No bits to drop: the code is longer than the look.
constexpr std::uint32_t look_of(unsigned bits, unsigned run, unsigned size, std::int32_t value) {
    return bits | run << 8 | size << 12 | static_cast<std::uint32_t>(value) << 16;
}
constexpr unsigned bits_of(std::uint32_t look) { return look & 0xFF; }
constexpr unsigned run_of(std::uint32_t look) { return look >> 8 & 15; }
constexpr unsigned size_of(std::uint32_t look) { return look >> 12 & 15; }
constexpr std::int32_t value_of(std::uint32_t look) { return static_cast<std::int32_t>(look) >> 16; }

// A skip: 5 bits how many bits to drop, 7 how many places to go on, 1 whether the block ends there. Where it ends one
// place is counted more, so that one comparison tells whether all of it is within the block.
constexpr unsigned skip_ends = 1 << 12;

std::int32_t extended(std::uint32_t read, unsigned size) {
    const auto value = static_cast<std::int32_t>(read);
    return value < 1 << (size - 1) ? value - (1 << size) + 1 : value;
}

// Calls `fill(first place, symbol, length)` for each code of up to `look_bits`: all that begins with it follows there.
template <typename Fill>
void each_short_code(const HuffmanCode &code, unsigned look_bits, Fill fill) {
    std::size_t symbol = 0;
    std::size_t next = 0;
    for (unsigned length = 1; length <= look_bits; ++length) {
        for (unsigned i = 0; i < code.counts[length - 1]; ++i, ++next) {
            fill(next << (look_bits - length), unsigned{code.symbols[symbol++]}, length);
        }
        next <<= 1;
    }
}

}  // namespace

void LongCodes::make(const HuffmanCode &code) {
    std::uint32_t next = 0;
    std::int32_t symbol = 0;
    for (unsigned length = 1; length <= 16; ++length) {
        const std::uint32_t count = code.counts[length - 1];
        offset_[length] = symbol - static_cast<std::int32_t>(next);
        next += count;
        symbol += static_cast<std::int32_t>(count);
        if (next > 1u << length || symbol > 256) {
            throw Unusual();
        }
        end_[length] = next;
        next <<= 1;
    }
    symbols_ = code.symbols;
}

Symbol LongCodes::find(std::uint32_t sixteen_bits) const {
    for (unsigned length = 1; length <= 16; ++length) {
        const std::uint32_t code = sixteen_bits >> (16 - length);
        if (code < end_[length]) {
            return {symbols_[static_cast<std::size_t>(static_cast<std::int32_t>(code) + offset_[length])], length};
        }
    }
    throw Unusual();
}

void DcTable::make(const HuffmanCode &code) {
    long_codes_.make(code);
    const auto used = std::accumulate(code.counts.begin(), code.counts.end(), std::ptrdiff_t{0});
    if (std::any_of(code.symbols.begin(), code.symbols.begin() + used, [](unsigned size) { return size > 15; })) {
        throw Unusual();
    }
    looks_.fill(0);
    each_short_code(code, look_bits, [&](std::size_t first, unsigned symbol, unsigned length) {
        const std::size_t count = std::size_t{1} << (look_bits - length);
        std::fill_n(looks_.begin() + static_cast<std::ptrdiff_t>(first), count, look_of(length, 0, symbol, 0));
    });
}

std::int32_t DcTable::take(Bits &bits) const {
    bits.refill();
    const std::uint32_t look = looks_[bits.top(look_bits)];
    unsigned size = size_of(look);
    if (bits_of(look) == 0) {
        const Symbol found = long_codes_.find(bits.top(16));
        size = found.symbol;
        bits.drop(found.length);
    } else {
        bits.drop(bits_of(look));
    }
    return size == 0 ? 0 : bits.take_value(size);
}

void AcTable::make(const HuffmanCode &code) {
    long_codes_.make(code);
    looks_.fill(0);
    each_short_code(code, look_bits, [&](std::size_t first, unsigned symbol, unsigned length) {
        const unsigned run = symbol >> 4;
        const unsigned size = symbol & 15;
        const unsigned left = look_bits - length;
        for (std::uint32_t rest = 0; rest < 1u << left; ++rest) {
            looks_[first + rest] = size == 0 || size > left
                                       ? look_of(length, run, size, 0)
                                       : look_of(length + size, run, 0, extended(rest >> (left - size), size));
        }
    });
    make_skips();
}

void AcTable::make_skips() {
    for (unsigned seen = 0; seen < 1u << skip_bits; ++seen) {
        unsigned bits = 0;
        unsigned places = 0;
        unsigned ends = 0;
        while (bits < skip_bits && ends == 0) {
            const unsigned rest = seen << bits & ((1u << skip_bits) - 1);
            const std::uint32_t look = looks_[rest >> (skip_bits - look_bits)];
            if (bits_of(look) == 0 || bits + bits_of(look) > skip_bits) {
                break;  // not all of it can be seen
            }
            bits += bits_of(look) + size_of(look);
            ends = value_of(look) == 0 && size_of(look) == 0 && run_of(look) != 15 ? skip_ends : 0;
            places += ends != 0 ? 1 : run_of(look) + 1;
        }
        skips_[seen] = static_cast<std::uint16_t>(bits | places << 5 | ends);
    }
}

// The code of a number whose value is not in the look, dropped.
AcTable::Coded AcTable::take_code(Bits &bits, std::uint32_t look) const {
    if (bits_of(look) != 0) {
        bits.drop(bits_of(look));
        return {run_of(look), size_of(look)};
    }
    const Symbol found = long_codes_.find(bits.top(16));
    bits.drop(found.length);
    return {found.symbol >> 4, found.symbol & 15};
}

unsigned AcTable::take(Bits &all_bits, std::int16_t *block) const {
    Bits bits = all_bits;  // a copy of our own can live in registers
    constexpr unsigned looks_per_refill = 56 / look_bits;
    unsigned at = 1;
    unsigned end = 1;
    while (at < 64) {
        bits.refill();
        std::uint32_t look = looks_[bits.top(look_bits)];
        for (unsigned i = 1; value_of(look) != 0; ++i) {
            at += run_of(look);
            block[natural_order[at]] = static_cast<std::int16_t>(value_of(look));
            end = ++at;
            bits.drop(bits_of(look));
            if (at >= 64 || i == looks_per_refill) {
                break;
            }
            look = looks_[bits.top(look_bits)];
        }
        if (at >= 64) {
            break;
        }
        if (value_of(look) != 0) {
            continue;
        }
        bits.refill();
        const Coded coded = take_code(bits, look);
        if (coded.size != 0) {
            at += coded.run;
            block[natural_order[at]] = static_cast<std::int16_t>(bits.take_value(coded.size));
            end = ++at;
        } else if (coded.run == 15) {
            at += 16;
        } else {
            break;
        }
    }
    if (at > 64) {
        throw Unusual();
    }
    all_bits = bits;
    return end;
}

// Returns the place behind the number, or 64 where the block ends.
unsigned AcTable::skip_one(Bits &bits, unsigned at) const {
    const std::uint32_t look = looks_[bits.top(look_bits)];
    if (value_of(look) != 0) {
        bits.drop(bits_of(look));
        return at + run_of(look) + 1;
    }
    const Coded coded = take_code(bits, look);
    bits.drop(coded.size);
    return coded.size == 0 && coded.run != 15 ? 64 : at + coded.run + 1;
}

void AcTable::skip(Bits &all_bits) const {
    Bits bits = all_bits;
    unsigned at = 1;
    while (at < 64) {
        bits.refill();
        const unsigned some = skips_[bits.top(skip_bits)];
        const unsigned behind = at + (some >> 5 & 127);
        if ((some & 31) == 0 || behind > 64) {
            at = skip_one(bits, at);
            continue;
        }
        bits.drop(some & 31);
        if ((some & skip_ends) != 0) {
            break;
        }
        at = behind;
    }
    if (at > 64) {
        throw Unusual();
    }
    all_bits = bits;
}

}  // namespace unstarve
