// Which way up a picture is, from the metadata of its file.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unstarve {

// The orientation, 1–8, that an APP1 segment states as EXIF or as XMP; 0 where it states none. Any bytes are safe.
int exif_orientation(const std::uint8_t *segment, std::size_t size);
int xmp_orientation(const std::uint8_t *segment, std::size_t size);

// How the upright picture lies in the stored one: pixel (y, x) is at first + y * row_step + x * pixel_step,
// counted in pixels of the stored picture. Orientations are EXIF's; 5–8 turn rows into columns.
struct Walk {
    std::ptrdiff_t first;
    std::ptrdiff_t row_step;
    std::ptrdiff_t pixel_step;
};

inline bool is_turned(int orientation) { return orientation >= 5; }
Walk upright_walk(int orientation, std::size_t stored_height, std::size_t stored_width);

}  // namespace unstarve
