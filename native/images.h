// Make a batch of many images on several threads: cut, resize, flip and scale each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "finish.h"
#include "image.h"

namespace unstarve {

// The part of an upright image that is wanted. `whole` takes all of it and ignores the box; otherwise a box that
// is not within the image is refused.
struct Cut {
    bool whole;
    std::int64_t top;
    std::int64_t left;
    std::int64_t height;
    std::int64_t width;
    bool flip;
    Resized resized{};  // of the box, if the target is a part of that; empty: the target is all of it
};

// The memory of a batch, image after image.
struct Batch {
    Target first;
    Target at(std::size_t image) const;
};

enum class Outcome { decoded, failed, not_for_us };

struct Result {
    Outcome outcome = Outcome::decoded;
    std::string trouble;  // for people to read, if it failed
};

// Decoded pixels of 3 bytes, row by row. Not owned.
struct Pixels {
    const std::uint8_t *data;
    std::size_t height;
    std::size_t width;
};

std::vector<Result> cut_pixels(const std::vector<Pixels> &images, const std::vector<Cut> &cuts,
                               const Batch &batch, unsigned threads);

// The rest needs libjpeg-turbo.

// A file in memory. Not owned.
struct Encoded {
    const std::uint8_t *data;
    std::size_t size;
    bool upright = true;  // turned by its metadata; false: taken as stored
};

std::vector<Result> decode_cuts(const std::vector<Encoded> &images, const std::vector<Cut> &cuts,
                                const Batch &batch, unsigned threads);

struct Measured {
    Result result;
    std::size_t height = 0;  // upright
    std::size_t width = 0;
    int orientation = 1;    // 1 where images are taken as stored
    bool is_plain = false;  // a JPEG that decoders in hardware take
};

Measured measure(const Encoded &image);
std::vector<Measured> measure(const std::vector<Encoded> &images, unsigned threads);

// Writes the upright image as 3 bytes per pixel. Fails if the image does not have the given size.
Result decode_whole(const Encoded &image, std::size_t height, std::size_t width, std::uint8_t *out);

}  // namespace unstarve
