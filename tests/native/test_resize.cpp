#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "check.h"
#include "images.h"
#include "resize_lines.h"
#include "weights.h"

namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes noise(std::size_t size, unsigned seed) {
    std::mt19937 random(seed);
    Bytes bytes(size);
    for (std::uint8_t &byte : bytes) {
        byte = static_cast<std::uint8_t>(random());
    }
    return bytes;
}

Bytes cut(const Bytes &pixels, std::size_t height, std::size_t width, const unstarve::Cut &cut, std::size_t out_height,
          std::size_t out_width) {
    Bytes out(out_height * out_width * 3);
    const unstarve::Batch batch{{reinterpret_cast<std::byte *>(out.data()), out_height, out_width, 1, true, nullptr}};
    const auto results = unstarve::cut_pixels({{pixels.data(), height, width}}, {cut}, batch, 1);
    CHECK(results[0].outcome == unstarve::Outcome::decoded);
    return out;
}

void weights_sum_up_to_one() {
    unstarve::Weights weights;
    for (const std::size_t in : {1, 2, 7, 224, 500, 4001}) {
        for (const std::size_t out : {1, 3, 224, 333}) {
            unstarve::weigh({in, out, 0, out}, weights);
            for (std::size_t at = 0; at < out; ++at) {
                CHECK(weights.count[at] >= 1 && weights.count[at] <= weights.taps);
                CHECK(weights.first[at] + weights.count[at] <= in);
                std::int64_t sum = 0;
                for (std::size_t i = 0; i < weights.taps; ++i) {
                    sum += weights.values[at * weights.taps + i];
                }
                // Each is rounded by a half at most; 255 times the sum and a half must stay below 256.
                CHECK(std::abs(sum - (1 << unstarve::weight_bits)) <= static_cast<std::int64_t>(weights.taps / 2 + 1));
                CHECK(sum * 255 + (1 << (unstarve::weight_bits - 1)) < std::int64_t{256} << unstarve::weight_bits);
            }
        }
    }
}

void the_same_size_changes_nothing_and_a_flip_mirrors() {
    const Bytes pixels = noise(9 * 13 * 3, 1);
    CHECK(cut(pixels, 9, 13, {true, 0, 0, 0, 0, false}, 9, 13) == pixels);
    const Bytes flipped = cut(pixels, 9, 13, {true, 0, 0, 0, 0, true}, 9, 13);
    for (std::size_t y = 0; y < 9; ++y) {
        for (std::size_t x = 0; x < 13; ++x) {
            CHECK(std::memcmp(&flipped[(y * 13 + x) * 3], &pixels[(y * 13 + 12 - x) * 3], 3) == 0);
        }
    }
}

void one_colour_stays_that_colour() {
    for (const int value : {0, 1, 128, 254, 255}) {
        const Bytes pixels(40 * 70 * 3, static_cast<std::uint8_t>(value));
        for (const std::size_t side : {1, 5, 33, 90}) {
            for (const std::uint8_t out : cut(pixels, 40, 70, {false, 3, 1, 36, 69, false}, side, side + 2)) {
                CHECK(out == value);
            }
        }
    }
}

// Nothing outside the box has a part in it, whatever the filter would reach.
void a_box_is_all_there_is() {
    const Bytes pixels = noise(30 * 40 * 3, 2);
    Bytes alone;
    for (std::size_t y = 5; y < 25; ++y) {
        alone.insert(alone.end(), pixels.begin() + static_cast<std::ptrdiff_t>((y * 40 + 7) * 3),
                     pixels.begin() + static_cast<std::ptrdiff_t>((y * 40 + 7 + 22) * 3));
    }
    for (const std::size_t side : {1, 4, 19, 64}) {
        CHECK(cut(pixels, 30, 40, {false, 5, 7, 20, 22, true}, side, side) ==
              cut(alone, 20, 22, {true, 0, 0, 0, 0, true}, side, side));
    }
}

// Of a resized image only a part is made, from only the pixels that it needs.
void a_part_of_a_resized_image_is_that_part() {
    for (const auto &[height, width] : {std::pair<std::size_t, std::size_t>{40, 50}, {3, 90}, {70, 1}, {2, 2}}) {
        const Bytes pixels = noise(height * width * 3, 6);
        for (const auto &[tall, wide] : {std::pair<std::size_t, std::size_t>{20, 31}, {90, 64}, {16, 300}}) {
            const Bytes whole = cut(pixels, height, width, {true, 0, 0, 0, 0, false}, tall, wide);
            for (const std::size_t top : {std::size_t{0}, tall / 3, tall - 8}) {
                for (const std::size_t left : {std::size_t{0}, wide / 3, wide - 13}) {
                    const unstarve::Cut part{true, 0, 0, 0, 0, false, {{tall, wide}, top, left}};
                    const Bytes made = cut(pixels, height, width, part, 8, 13);
                    for (std::size_t y = 0; y < 8; ++y) {
                        CHECK(std::memcmp(&made[y * 13 * 3], &whole[((top + y) * wide + left) * 3], 13 * 3) == 0);
                    }
                }
            }
        }
    }
}

void the_pixels_that_a_part_needs_are_few() {
    unstarve::Weights weights;
    unstarve::weigh({65500, 65500 * std::size_t{256}, 32750 * std::size_t{256}, 224}, weights);
    CHECK(weights.end - weights.begin <= 4);
    CHECK(weights.begin > 32740 && weights.end < 32760);
    unstarve::weigh({500, 256, 16, 224}, weights);
    CHECK(weights.begin > 0 && weights.end < 500);
    unstarve::weigh({500, 256, 0, 256}, weights);
    CHECK(weights.begin == 0 && weights.end == 500);
}

void every_processor_computes_the_same() {
    const unstarve::LineResizer plain = unstarve::plain_line_resizer();
    const unstarve::LineResizer best = unstarve::best_line_resizer();
    for (std::size_t pairs = 1; pairs < 6; ++pairs) {
        const Bytes memory = noise(4 * 400, static_cast<unsigned>(pairs));
        const std::uint8_t *const rows[] = {memory.data(), memory.data() + 400, memory.data() + 800,
                                            memory.data() + 1200};
        const std::vector<std::size_t> first = {0, 1, 3, 3, 9, 20, 31};
        std::vector<std::int32_t> weights(first.size() * pairs * 8);
        for (std::size_t i = 0; i < weights.size(); ++i) {
            weights[i] = static_cast<std::int32_t>(i * 7919 % ((1u << unstarve::weight_bits) / (pairs * 2)));
        }
        for (const bool flip : {false, true}) {
            Bytes one(4 * 28);
            Bytes other(4 * 28);
            std::uint8_t *const to_one[] = {&one[0], &one[28], &one[56], &one[84]};
            std::uint8_t *const to_other[] = {&other[0], &other[28], &other[56], &other[84]};
            plain.along_x(rows, first, weights.data(), pairs, flip, to_one);
            best.along_x(rows, first, weights.data(), pairs, flip, to_other);
            CHECK(one == other);
        }
        const std::int32_t down[] = {1 << 20, 1 << 21, 1 << 19, 1 << 19};
        Bytes one(384);
        Bytes other(384);
        plain.along_y(rows, down, 4, 384, one.data());
        best.along_y(rows, down, 4, 384, other.data());
        CHECK(one == other);
    }
}

void pixels_are_widened_without_reading_past_them() {
    const unstarve::LineResizer best = unstarve::best_line_resizer();
    for (std::size_t count = 1; count < 40; ++count) {
        const Bytes pixels = noise(count * 3, 3);
        Bytes wide(count * 4);
        best.widen(pixels.data(), count, wide.data());
        for (std::size_t i = 0; i < count; ++i) {
            CHECK(std::memcmp(&wide[i * 4], &pixels[i * 3], 3) == 0);
        }
    }
}

void boxes_outside_the_image_are_refused() {
    const Bytes pixels = noise(10 * 10 * 3, 4);
    Bytes out(8 * 8 * 3);
    const unstarve::Batch batch{{reinterpret_cast<std::byte *>(out.data()), 8, 8, 1, true, nullptr}};
    for (const unstarve::Cut &cut : std::vector<unstarve::Cut>{{false, -1, 0, 4, 4, false},
                                                               {false, 0, 7, 4, 4, false},
                                                               {false, 0, 0, 0, 4, false},
                                                               {false, 0, 0, 4, -3, false},
                                                               {false, 0, 0, INT64_MAX, 4, false},
                                                               {false, INT64_MAX, INT64_MAX, INT64_MAX, 4, false},
                                                               {false, INT64_MIN, 0, 4, 4, false}}) {
        CHECK(unstarve::cut_pixels({{pixels.data(), 10, 10}}, {cut}, batch, 1)[0].outcome == unstarve::Outcome::failed);
    }
}

// One image after the other, in every layout and type.
void every_layout_holds_the_same() {
    const Bytes pixels = noise(20 * 30 * 3, 5);
    std::vector<std::uint16_t> table(3 * 256);
    for (std::size_t i = 0; i < table.size(); ++i) {
        table[i] = static_cast<std::uint16_t>(i * 3);
    }
    for (const std::size_t width : {1, 7, 8, 9, 31}) {
        const std::size_t plane = 11 * width;
        Bytes last(plane * 3);
        Bytes first(plane * 3);
        std::vector<std::uint16_t> looked_up(plane * 3);
        const std::vector<unstarve::Cut> whole{{true, 0, 0, 0, 0, false}};
        const auto write = [&](void *memory, std::size_t item_bytes, bool channels_last, const void *entries) {
            unstarve::cut_pixels({{pixels.data(), 20, 30}}, whole,
                                 {{static_cast<std::byte *>(memory), 11, width, item_bytes, channels_last,
                                   static_cast<const std::byte *>(entries)}},
                                 1);
        };
        write(last.data(), 1, true, nullptr);
        write(first.data(), 1, false, nullptr);
        write(looked_up.data(), 2, false, table.data());
        for (std::size_t at = 0; at < plane; ++at) {
            for (std::size_t channel = 0; channel < 3; ++channel) {
                CHECK(first[channel * plane + at] == last[at * 3 + channel]);
                CHECK(looked_up[channel * plane + at] == table[channel * 256 + last[at * 3 + channel]]);
            }
        }
    }
}

// The table as torch computes it, step by step in floats.
std::vector<float> table_of(const unstarve::Scaling &scaling) {
    std::vector<float> table(3 * 256);
    for (std::size_t i = 0; i < table.size(); ++i) {
        const float share = static_cast<float>(i % 256) / 255.0f;
        const float centred = share - scaling.mean[i / 256];
        table[i] = centred / scaling.std[i / 256];
    }
    return table;
}

void what_is_computed_is_what_is_looked_up() {
    const Bytes pixels = noise(40 * 50 * 3, 7);
    std::mt19937 random(8);
    std::uniform_real_distribution<float> between(0.01f, 1.0f);
    for (int i = 0; i < 50; ++i) {
        unstarve::Scaling scaling{{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
        for (std::size_t channel = 0; channel < 3 && i > 0; ++channel) {
            scaling.mean[channel] = between(random);
            scaling.std[channel] = between(random);
        }
        std::vector<float> table = table_of(scaling);
        const auto *const entries = reinterpret_cast<const std::byte *>(table.data());
        if (!unstarve::computes(scaling, entries)) {
            continue;  // another processor, or numbers that are looked up
        }
        const std::size_t width = 8 + random() % 30;
        std::vector<float> looked_up(3 * 20 * width);
        std::vector<float> computed(looked_up.size());
        for (auto *const out : {&looked_up, &computed}) {
            const unstarve::Batch batch{{reinterpret_cast<std::byte *>(out->data()), 20, width, 4, false, entries,
                                         out == &computed ? &scaling : nullptr}};
            unstarve::cut_pixels({{pixels.data(), 40, 50}}, {{true, 0, 0, 0, 0, false}}, batch, 1);
        }
        CHECK(std::memcmp(looked_up.data(), computed.data(), computed.size() * sizeof(float)) == 0);
        table[256 + random() % 256] += 0.001f;
        CHECK(!unstarve::computes(scaling, entries));
    }
}

}  // namespace

int main() {
    what_is_computed_is_what_is_looked_up();
    weights_sum_up_to_one();
    the_same_size_changes_nothing_and_a_flip_mirrors();
    one_colour_stays_that_colour();
    a_box_is_all_there_is();
    a_part_of_a_resized_image_is_that_part();
    the_pixels_that_a_part_needs_are_few();
    every_processor_computes_the_same();
    pixels_are_widened_without_reading_past_them();
    boxes_outside_the_image_are_refused();
    every_layout_holds_the_same();
}
