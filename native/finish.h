// Write rows of pixels into the batch, in its type and layout.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unstarve {

// The formula behind a table of floats, per channel: (byte / 255 - mean) / std.
struct Scaling {
    float mean[3];
    float std[3];
};

// The memory of one image: [3, height, width] or, with channels_last, [height, width, 3]. Not owned.
struct Target {
    std::byte *data;
    std::size_t height;
    std::size_t width;
    std::size_t item_bytes;     // 1, 2 or 4
    bool channels_last;
    const std::byte *table;     // [3, 256] items: the value of each byte per channel; null: bytes stay bytes
    const Scaling *scaling = nullptr;  // computes the values of the table, see `computes`; null: look them up
};

// Whether this processor can quickly compute exactly the values of a table of floats from `scaling`.
bool computes(const Scaling &scaling, const std::byte *table);

// Writes row `y` of the target from `width` pixels of 4 bytes: red, green, blue and an unused one.
void finish_row(const std::uint8_t *pixels, std::size_t y, const Target &target);

}  // namespace unstarve
