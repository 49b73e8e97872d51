#include "draws.h"

#include <cmath>
#include <cstring>

namespace unstarve {

namespace {

// Offsets in torch's state: seed (8 bytes), left (4), seeded (4), next (8), then the words, each in 8 bytes.
constexpr std::size_t left_at = 8, next_at = 16, words_at = 24;
constexpr std::size_t shift = 397;
constexpr int attempts = 10;  // as torchvision makes

template <typename Number>
Number read(const std::byte *from) {
    Number number;
    std::memcpy(&number, from, sizeof number);
    return number;
}

template <typename Number>
void write(std::byte *to, Number number) {
    std::memcpy(to, &number, sizeof number);
}

}  // namespace

TorchGenerator::TorchGenerator(const std::byte *state)
    : words_{}, left_(read<std::uint32_t>(state + left_at)),
      next_(static_cast<std::uint32_t>(read<std::uint64_t>(state + next_at))) {
    for (std::size_t at = 0; at < words_.size(); ++at) {
        words_[at] = static_cast<std::uint32_t>(read<std::uint64_t>(state + words_at + 8 * at));
    }
}

void TorchGenerator::store(std::byte *state) const {
    write(state + left_at, left_);
    write(state + next_at, std::uint64_t{next_});
    for (std::size_t at = 0; at < words_.size(); ++at) {
        write(state + words_at + 8 * at, std::uint64_t{words_[at]});
    }
}

void TorchGenerator::refill() {
    const std::size_t count = words_.size();
    for (std::size_t at = 0; at < count; ++at) {
        const std::uint32_t mixed = (words_[at] & 0x80000000U) | (words_[(at + 1) % count] & 0x7fffffffU);
        words_[at] = words_[(at + shift) % count] ^ (mixed >> 1U) ^ ((mixed & 1U) != 0 ? 0x9908b0dfU : 0U);
    }
    left_ = static_cast<std::uint32_t>(count);
    next_ = 0;
}

std::uint32_t TorchGenerator::next() {
    if (--left_ == 0 || next_ >= words_.size()) {
        refill();
    }
    std::uint32_t word = words_[next_++];
    word ^= word >> 11U;
    word ^= (word << 7U) & 0x9d2c5680U;
    word ^= (word << 15U) & 0xefc60000U;
    return word ^ (word >> 18U);
}

float uniform(std::uint32_t drawn, float low, float high, bool fused) {
    const float share = static_cast<float>(drawn & 0xffffffU) / static_cast<float>(1U << 24U);
    if (fused) {
        return std::fma(share, high - low, low);
    }
    const volatile float scaled = share * (high - low);  // not fused here, either
    return scaled + low;
}

std::size_t draw_cuts(const Draws &draws, const std::int64_t *sizes, std::vector<DrawnCut> &cuts) {
    std::size_t drawn = 0;
    for (std::size_t at = 0; at < cuts.size(); ++at) {
        const std::int64_t height = sizes[2 * at], width = sizes[2 * at + 1];
        DrawnCut &cut = cuts[at] = {};
        for (int attempt = 0; attempt < attempts && cut.height == 0; ++attempt) {
            if (drawn + 4 > draws.count) {
                return draws.count + 1;
            }
            const double share = uniform(draws.numbers[drawn], draws.low, draws.high, draws.fused);
            const double area = static_cast<double>(height * width) * share;
            const double shape = draws.shapes[drawn + 1];
            drawn += 2;
            const auto wide = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area * shape)));
            const auto tall = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area / shape)));
            if (0 < wide && wide <= width && 0 < tall && tall <= height) {
                const std::int64_t top = draws.numbers[drawn] % (height - tall + 1);
                const std::int64_t left = draws.numbers[drawn + 1] % (width - wide + 1);
                cut = {top, left, tall, wide, 0};
                drawn += 2;
            }
        }
        if (draws.flip > 0) {
            if (drawn == draws.count) {
                return draws.count + 1;
            }
            cut.flipped = uniform(draws.numbers[drawn++], 0.0F, 1.0F, draws.fused) < draws.flip ? 1 : 0;
        }
    }
    return drawn;
}

}  // namespace unstarve
