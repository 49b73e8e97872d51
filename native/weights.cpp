#include "weights.h"

#include <algorithm>
#include <cmath>

namespace unstarve {

// Step by step what Pillow computes, in double precision and in its order, so that every rounding is its own.
void weigh(const Span &span, Weights &weights) {
    const double scale = static_cast<double>(span.in) / static_cast<double>(span.out);
    const double support = std::max(scale, 1.0);  // of the triangle, which widens when there is less room
    const double shrink = 1.0 / support;
    weights.taps = static_cast<std::size_t>(std::ceil(support)) * 2 + 1;
    weights.first.resize(span.count);
    weights.count.resize(span.count);
    weights.values.assign(span.count * weights.taps, 0);
    std::vector<double> heights(weights.taps);
    for (std::size_t at = 0; at < span.count; ++at) {
        const double center = (static_cast<double>(span.first + at) + 0.5) * scale;
        const double from = std::max(center - support + 0.5, 0.0);
        const double to = std::min(center + support + 0.5, static_cast<double>(span.in));
        const auto first = static_cast<std::size_t>(from);
        const std::size_t count = static_cast<std::size_t>(to) - first;
        double sum = 0.0;
        for (std::size_t i = 0; i < count; ++i) {
            const double distance = std::abs((static_cast<double>(i + first) - center + 0.5) * shrink);
            heights[i] = distance < 1.0 ? 1.0 - distance : 0.0;
            sum += heights[i];
        }
        for (std::size_t i = 0; i < count; ++i) {
            weights.values[at * weights.taps + i] =
                static_cast<std::int32_t>(0.5 + heights[i] / sum * (1 << weight_bits));
        }
        weights.first[at] = first;
        weights.count[at] = count;
    }
    weights.begin = weights.first.front();
    weights.end = weights.first.back() + weights.count.back();
    for (std::size_t &first : weights.first) {
        first -= weights.begin;
    }
}

}  // namespace unstarve
