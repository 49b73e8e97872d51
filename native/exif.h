// The orientation of an image, from the metadata of its file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace unstarve {

// The orientation in the APP1 segments of a JPEG, as Pillow reads it: EXIF segments are joined; the last XMP segment
// counts, and only if EXIF has no orientation. Any bytes are safe.
class Metadata {
  public:
    // `segment` must outlive this object.
    void add_app1(const std::uint8_t *segment, std::size_t size);

    // 1–8; 1 if there is no orientation that can be read.
    int orientation() const;

  private:
    std::string_view exif_;
    std::vector<char> joined_;  // if there are several segments
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
