// What cutting from a file and cutting from pixels have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "picture.h"
#include "pictures.h"
#include "resize.h"

namespace unstarve {

// Memory that a thread uses again from picture to picture.
struct Scratch {
    Resizer resizer;
    std::vector<std::uint8_t> row;
    std::vector<std::uint8_t> block;

    // Room for one row of 4 bytes per pixel as the resizer takes it; its slack holds zeros or older pixels.
    std::uint8_t *row_for(std::size_t pixels);
};

// The window that a cut means in an upright picture. Throws PictureError where it is not within.
Window window_of(const Cut &cut, Extent picture);

// Pixels of 3 bytes → pixels of 4, the last of which says nothing.
void widen(const std::uint8_t *pixels, std::size_t count, std::uint8_t *out);

// Calls `work` once for each picture, on up to `threads` threads; what it throws becomes the picture's result.
std::vector<Result> for_each_picture(std::size_t count, unsigned threads,
                                     const std::function<Outcome(std::size_t, Scratch &)> &work);

}  // namespace unstarve
