// Which way up an image is, from the metadata of its file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace unstarve {

// What the APP1 segments of a JPEG say of how it was held, read as Pillow reads it: EXIF segments are one after the
// other, of XMP the last counts, and only where EXIF says nothing. Any bytes are safe.
class Metadata {
  public:
    // `segment` must stay where it is.
    void add_app1(const std::uint8_t *segment, std::size_t size);

    // 1–8; 1 where nothing is said, or nothing that can be read.
    int orientation() const;

  private:
    std::string_view exif_;
    std::vector<char> joined_;  // where there are several segments
    std::string_view xmp_;
};

// How the upright image lies in the stored one: pixel (y, x) is at first + y * row_step + x * pixel_step,
// counted in pixels of the stored image. Orientations are EXIF's; 5–8 turn rows into columns.
struct Walk {
    std::ptrdiff_t first;
    std::ptrdiff_t row_step;
    std::ptrdiff_t pixel_step;
};

inline bool is_turned(int orientation) { return orientation >= 5; }
Walk upright_walk(int orientation, std::size_t stored_height, std::size_t stored_width);

}  // namespace unstarve
