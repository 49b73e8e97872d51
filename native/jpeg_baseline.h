// Decode a window of the most common kind of JPEG, row by row, faster than libjpeg-turbo.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "jpeg_colour.h"
#include "jpeg_header.h"
#include "jpeg_huffman.h"
#include "jpeg_segments.h"
#include "image.h"

namespace unstarve {

// The samples of one component that a window needs, a few rows at a time. Rows and columns count from the image's
// first.
struct Plane {
    std::size_t blocks_across = 1;  // of one unit: how many blocks of this component are coded together
    std::size_t blocks_down = 1;
    std::size_t width = 0;          // of the whole image, in samples
    std::size_t height = 0;
    std::size_t first_column = 0;   // blocks that are needed: from the first to before the end
    std::size_t end_column = 0;
    std::size_t first_row = 0;
    std::size_t end_row = 0;
    std::size_t ring_rows = 0;
    std::size_t stride = 0;
    std::vector<std::uint8_t> samples;

    bool needs(std::size_t row, std::size_t column) const {
        return row >= first_row && row < end_row && column >= first_column && column < end_column;
    }
    std::uint8_t *row(std::size_t y);  // its column `first_column * 8`
    void make_ring();
    void repeat_edges(std::size_t unit_row);
};

// Its pixels equal libjpeg-turbo's. It throws Unusual for anything damaged or unusual: libjpeg-turbo then decodes that
// image from the start. Reuse it for many images: it keeps memory and tables.
class BaselineJpeg {
  public:
    // Reads the header; without `upright` its orientation is taken to be 1. The bytes of the file must stay until its
    // last row is read.
    void open(const std::uint8_t *data, std::size_t size, bool upright = true);

    Extent stored() const { return header_.extent; }
    int orientation() const { return header_.orientation; }

    // Starts decoding a window of the stored image.
    void start(const Window &window);

    // As in `Jpeg`; pixels have 4 bytes, of which the last is unused.
    std::size_t row_pixels() const { return row_pixels_; }
    std::size_t margin_pixels() const { return margin_; }
    void read_row(std::uint8_t *pixels);

    std::size_t kept_bytes() const;

  private:
    struct Tables {
        HuffmanCode dc_code;
        HuffmanCode ac_code;
        DcTable dc;
        AcTable ac;
    };
    void make_tables();
    void place(std::size_t component, const Window &window);
    void read_unit_row();
    void read_unit(Bits &bits, std::size_t unit);
    void read_block(Bits &bits, std::size_t component, std::size_t row, std::size_t column);
    void finish_block(const std::uint16_t *quantizers, std::uint8_t *out, std::size_t stride);
    void finish_last_block();
    std::size_t far_colour_row(std::size_t y) const;

    JpegHeader header_;
    const std::uint8_t *file_end_ = nullptr;
    std::array<Tables, 3> tables_{};
    std::array<const Tables *, 3> tables_of_{};
    std::array<Plane, 3> planes_{};
    CodedSegments segments_;
    Bits bits_;
    std::array<std::uint32_t, 3> first_numbers_{};  // of each component's last block; may wrap in a damaged file
    std::size_t units_across_ = 0;                  // units: what is coded together, 8·across × 8·down pixels
    std::size_t unit_rows_read_ = 0;
    std::size_t units_to_restart_ = 0;
    std::size_t end_unit_ = 0;  // of the last row of units that is needed, the first that is not
    std::size_t end_unit_row_ = 0;
    std::size_t next_row_ = 0;
    std::size_t first_pixel_ = 0;
    std::size_t row_pixels_ = 0;
    std::size_t margin_ = 0;
    // Blocks are transformed in pairs: one that waits for a second, and the one that is being read.
    struct Waiting {
        alignas(32) std::int16_t numbers[64];
        const std::uint16_t *quantizers;
        std::uint8_t *out;
        std::size_t stride;
    };
    std::array<Waiting, 2> waiting_{};
    std::size_t waiting_count_ = 0;
};

}  // namespace unstarve
