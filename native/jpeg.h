// Decode a window of a JPEG file in memory, row by row. Needs libjpeg-turbo.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>  // jpeglib.h needs it and does not include it

#include <jpeglib.h>

#include "image.h"

namespace unstarve {

// Receives the errors of libjpeg.
struct JpegErrors {
    jpeg_error_mgr manager;  // first: libjpeg hands back its address
    std::jmp_buf jump;
    char message[JMSG_LENGTH_MAX];
};

bool looks_like_jpeg(const std::uint8_t *data, std::size_t size);

// The constructor reads the header; without `upright` it takes the orientation to be 1. Every function throws
// ImageError for a damaged file: libjpeg leaves by a jump, which ends in the function that called it. The bytes of
// the file must outlive the object.
class Jpeg {
  public:
    Jpeg(const std::uint8_t *data, std::size_t size, bool upright = true);
    ~Jpeg();
    Jpeg(const Jpeg &) = delete;
    Jpeg &operator=(const Jpeg &) = delete;

    // Whether this JPEG can be decoded here: 8 bits, Huffman-coded, YCbCr, RGB or grey.
    bool supported() const;
    Extent stored() const { return {info_.image_height, info_.image_width}; }
    int orientation() const { return orientation_; }
    // Neither progressive nor RGB: what decoders in hardware take.
    bool is_plain() const { return !info_.progressive_mode && info_.jpeg_color_space != JCS_RGB; }

    // Starts decoding a window of the stored image; throws if the file is too short for the whole image. The pixels
    // equal those of decoding everything. An image can be decoded once. `pixel_bytes` is 3, or 4 with an unused last
    // byte.
    void start(const Window &window, std::size_t pixel_bytes);

    // The number of pixels that `read_row` writes, and the index of the window's first among them: more columns are
    // decoded than the window has.
    std::size_t row_pixels() const { return info_.output_width; }
    std::size_t margin_pixels() const { return margin_; }

    // Decodes the next row of the window, from top to bottom.
    void read_row(std::uint8_t *pixels);

  private:
    template <typename Call>
    void guarded(Call call);
    void read_header(bool upright);
    void check_size() const;
    void check_complete() const;
    void crop_columns(const Window &window);

    jpeg_decompress_struct info_{};
    JpegErrors errors_{};
    jpeg_source_mgr source_{};
    const std::uint8_t *const data_;
    const std::size_t size_;
    int orientation_ = 1;
    std::size_t margin_ = 0;
};

}  // namespace unstarve
