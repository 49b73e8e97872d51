// One JPEG file in memory → rows of pixels, of which only a window is decoded. Needs libjpeg-turbo.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>  // jpeglib.h needs it and does not say so

#include <jpeglib.h>

#include "image.h"

namespace unstarve {

// Where libjpeg goes with an error.
struct JpegErrors {
    jpeg_error_mgr manager;  // first: libjpeg hands back its address
    std::jmp_buf jump;
    char message[JMSG_LENGTH_MAX];
};

bool looks_like_jpeg(const std::uint8_t *data, std::size_t size);

// Reads the header when made, and where it is not to be `upright` takes its orientation for 1; everything throws ImageError for a file that is damaged. libjpeg's own way out of
// an error, a jump, ends where it was called from. The bytes of the file must outlive it.
class Jpeg {
  public:
    Jpeg(const std::uint8_t *data, std::size_t size, bool upright = true);
    ~Jpeg();
    Jpeg(const Jpeg &) = delete;
    Jpeg &operator=(const Jpeg &) = delete;

    // Whether this is a kind that is decoded here: 8 bits, Huffman-coded, YCbCr, RGB or grey.
    bool supported() const;
    Extent stored() const { return {info_.image_height, info_.image_width}; }
    int orientation() const { return orientation_; }

    // Begins decoding a window of the stored image, and throws where the file cannot hold the whole of it.
    // Pixels equal those of a decode of everything. An image is decoded once. `pixel_bytes` is 3, or 4, the last of
    // which says nothing.
    void start(const Window &window, std::size_t pixel_bytes);

    // How many pixels `read_row` writes, and which of them is the window's first: more columns are decoded than
    // the window has.
    std::size_t row_pixels() const { return info_.output_width; }
    std::size_t margin_pixels() const { return margin_; }

    // Decodes the next row of the window, from its top to its bottom.
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
