// JPEGs made for the tests: waves and noise, the same ones every time.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <jpeglib.h>

struct Kind {
    unsigned height;
    unsigned width;
    int across = 2;  // pixels for which one colour is stored: 2 × 2 is what most files have
    int down = 2;
    bool progressive = false;
    bool grey = false;
    unsigned restart_rows = 0;
    int orientation = 0;
    J_COLOR_SPACE colours = JCS_YCbCr;
    int quality = 85;
    bool own_codes = false;  // Huffman codes made for this image
};

inline std::vector<std::uint8_t> exif_with(int orientation) {
    return {'E', 'x', 'i', 'f', 0, 0, 'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0,
            0x12, 1, 3, 0, 1, 0, 0, 0, static_cast<std::uint8_t>(orientation), 0, 0, 0, 0, 0, 0, 0};
}

inline std::vector<std::uint8_t> jpeg_of(const Kind &kind) {
    jpeg_compress_struct info{};
    jpeg_error_mgr errors{};
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    unsigned char *made = nullptr;
    unsigned long size = 0;
    jpeg_mem_dest(&info, &made, &size);
    const bool cmyk = kind.colours == JCS_CMYK;
    info.image_height = kind.height;
    info.image_width = kind.width;
    info.input_components = kind.grey ? 1 : cmyk ? 4 : 3;
    info.in_color_space = kind.grey ? JCS_GRAYSCALE : cmyk ? JCS_CMYK : JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_colorspace(&info, kind.grey ? JCS_GRAYSCALE : kind.colours);
    jpeg_set_quality(&info, kind.quality, TRUE);
    info.optimize_coding = kind.own_codes ? TRUE : FALSE;
    if (!kind.grey) {
        info.comp_info[0].h_samp_factor = kind.across;
        info.comp_info[0].v_samp_factor = kind.down;
    }
    info.restart_in_rows = static_cast<int>(kind.restart_rows);
    if (kind.progressive) {
        jpeg_simple_progression(&info);
    }
    jpeg_start_compress(&info, TRUE);
    if (kind.orientation != 0) {
        const std::vector<std::uint8_t> exif = exif_with(kind.orientation);
        jpeg_write_marker(&info, JPEG_APP0 + 1, exif.data(), static_cast<unsigned>(exif.size()));
    }
    std::mt19937 random(kind.height * 7919 + kind.width);
    const auto components = static_cast<std::size_t>(info.input_components);
    std::vector<std::uint8_t> row(kind.width * components);
    for (unsigned y = 0; y < kind.height; ++y) {
        for (std::size_t i = 0; i < row.size(); ++i) {
            const double wave = std::sin((static_cast<double>(i) * 0.6 + y) / (3.0 + static_cast<double>(i % components)));
            row[i] = static_cast<std::uint8_t>(110 + 90 * wave + static_cast<double>(random() % 40));
        }
        JSAMPROW rows[] = {row.data()};
        jpeg_write_scanlines(&info, rows, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    const std::vector<std::uint8_t> bytes(made, made + size);
    std::free(made);
    return bytes;
}
