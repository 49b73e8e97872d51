// What cutting from a file and cutting from pixels have in common.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "jpeg_baseline.h"
#include "image.h"
#include "images.h"
#include "resize.h"

namespace unstarve {

using PixelRows = std::array<std::uint8_t *, rows_at_once>;

// Memory that a thread uses again from image to image.
struct Scratch {
    Resizer resizer;
    BaselineJpeg baseline;
    std::vector<std::uint8_t> rows;
    std::vector<std::uint8_t> block;

    // Rows of 4 bytes per pixel as the resizer, once started, takes them; what they hold is of older images.
    PixelRows rows_for(std::size_t pixels);
    std::size_t kept_bytes() const;
};

// Makes the resizer ready for a cut; returns the window of the upright image whose rows it takes.
Window start_cut(const Cut &cut, Extent image, const Target &target, Resizer &resizer);

// Calls `work` once for each image, on up to `threads` threads; what it throws becomes the image's result.
std::vector<Result> for_each_image(std::size_t count, unsigned threads,
                                     const std::function<Outcome(std::size_t, Scratch &)> &work);

}  // namespace unstarve
