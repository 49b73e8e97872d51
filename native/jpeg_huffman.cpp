#include "jpeg_huffman.h"

#include <algorithm>
#include <numeric>

namespace unstarve {
namespace {

// What is seen of a code of `length` bits, a run and a size, by all the looks that begin with it.
template <std::size_t count>
void fill_looks(std::array<Look, count> &looks, unsigned look_bits, std::size_t code, unsigned length,
                unsigned symbol) {
    const unsigned run = symbol >> 4;
    const unsigned size = symbol & 15;
    const unsigned left = look_bits - length;
    for (std::uint32_t rest = 0; rest < 1u << left; ++rest) {
        looks[(code << left) + rest] = size == 0 || size > left
                                           ? Look(length, run, size, 0)
                                           : Look(length + size, run, 0, signed_number(rest >> (left - size), size));
    }
}

template <std::size_t count>
void make_looks(const HuffmanCode &code, unsigned look_bits, std::array<Look, count> &looks) {
    looks.fill(Look());
    std::size_t symbol = 0;
    std::size_t next = 0;
    for (unsigned length = 1; length <= look_bits; ++length, next <<= 1) {
        for (unsigned i = 0; i < code.counts[length - 1]; ++i, ++next) {
            fill_looks(looks, look_bits, next, length, code.symbols[symbol++]);
        }
    }
}

}  // namespace

void LongCodes::make(const HuffmanCode &code) {
    std::uint32_t next = 0;
    std::int32_t symbol = 0;
    for (unsigned length = 1; length <= 16; ++length, next <<= 1) {
        const std::uint32_t count = code.counts[length - 1];
        offset_[length] = symbol - static_cast<std::int32_t>(next);
        next += count;
        symbol += static_cast<std::int32_t>(count);
        if (next > 1u << length || symbol > 256) {
            throw Unusual();
        }
        end_[length] = next;
    }
    symbols_ = code.symbols;
}

LongCodes::Found LongCodes::find(std::uint32_t sixteen_bits) const {
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
    make_looks(code, look_bits, looks_);
}

void AcTable::make(const HuffmanCode &code) {
    long_codes_.make(code);
    make_looks(code, look_bits, looks_);
    make_skips();
}

void AcTable::make_skips() {
    for (unsigned seen = 0; seen < 1u << skip_bits; ++seen) {
        unsigned bits = 0;
        unsigned places = 0;
        unsigned ends = 0;
        while (bits < skip_bits && ends == 0) {
            const unsigned rest = seen << bits & ((1u << skip_bits) - 1);
            const Look look = looks_[rest >> (skip_bits - look_bits)];
            const unsigned all_bits = look.bits() + look.size();
            if (look.bits() == 0 || bits + look.bits() > skip_bits || bits + all_bits > most_skipped) {
                break;  // not all of it can be seen, or skipped at once
            }
            bits += all_bits;
            ends = look.value() == 0 && look.size() == 0 && look.run() != 15 ? skip_ends : 0;
            places += ends != 0 ? 1 : look.run() + 1;
        }
        skips_[seen] = static_cast<std::uint16_t>(bits == 0 ? skip_cannot : bits | places << 5 | ends);
    }
}

}  // namespace unstarve
