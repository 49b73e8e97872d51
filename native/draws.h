// Random boxes and flips for a batch of images, number for number as torch's generator for CPUs draws them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace unstarve {

// The Mersenne Twister of torch, in the form of `torch.Generator.get_state()`.
class TorchGenerator {
  public:
    static constexpr std::size_t state_bytes = 5056;

    explicit TorchGenerator(const std::byte *state);
    std::uint32_t next();
    void store(std::byte *state) const;  // into the state that it came from

  private:
    void refill();

    std::array<std::uint32_t, 624> words_;
    std::uint32_t left_;
    std::uint32_t next_;
};

// torch computes x * (high - low) + low; its compiler may round that once instead of twice (fused).
float uniform(std::uint32_t drawn, float low, float high, bool fused);

struct DrawnCut {
    std::int64_t top, left, height, width, flipped;  // height 0: no box fitted
};

struct Draws {
    const std::uint32_t *numbers;  // what the generator gives next
    const float *shapes;           // e to the power of uniform(number, log of the ratios) for each of them
    std::size_t count;
    float low, high;  // shares of an image's area
    double flip;      // a probability; 0 draws nothing
    bool fused;
};

// A cut for each image, (height, width), and how many numbers were drawn; count + 1 if there were too few.
std::size_t draw_cuts(const Draws &draws, const std::int64_t *sizes, std::vector<DrawnCut> &cuts);

}  // namespace unstarve
