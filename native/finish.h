// Rows of pixels → their place in the batch, in its type and layout.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unstarve {

// How a table of floats was made, for each channel: (byte / 255 - mean) / std.
struct Scaling {
    float mean[3];
    float std[3];
};

// Where one image goes: [3, height, width] or, with channels_last, [height, width, 3]. Not owned.
struct Target {
    std::byte *data;
    std::size_t height;
    std::size_t width;
    std::size_t item_bytes;     // 1, 2 or 4
    bool channels_last;
    const std::byte *table;     // [3, 256] items: what each channel makes of each byte; null: bytes stay bytes
    const Scaling *scaling = nullptr;  // computes what is in the table, see `computes`; null: it is looked up
};

// Whether this processor computes by `scaling`, quickly, exactly what is in a table of floats.
bool computes(const Scaling &scaling, const std::byte *table);

// Writes row `y` of the target from `width` pixels of 4 bytes: red, green, blue and one that is not looked at.
void finish_row(const std::uint8_t *pixels, std::size_t y, const Target &target);

}  // namespace unstarve
