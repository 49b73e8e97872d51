// Many images → one batch: each cut out, resized, flipped, finished; by several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "finish.h"
#include "image.h"

namespace unstarve {

// Which part of an upright image is wanted. `whole`: all of it, whatever the box says; else the box may be
// anywhere, and is refused where it is not within the image.
struct Cut {
    bool whole;
    std::int64_t top;
    std::int64_t left;
    std::int64_t height;
    std::int64_t width;
    bool flip;
    Resized resized{};  // of the box, where the target is only a part of that, within it; empty: it is all of it
};

// Where the images of a batch go: one after the other.
struct Batch {
    Target first;
    Target at(std::size_t image) const;
};

enum class Outcome { decoded, failed, not_for_us };

struct Result {
    Outcome outcome = Outcome::decoded;
    std::string trouble;  // in words for a person, where it failed
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
    bool upright = true;  // turned as its metadata say; else its upright pixels are those that are stored
};

std::vector<Result> decode_cuts(const std::vector<Encoded> &images, const std::vector<Cut> &cuts,
                                const Batch &batch, unsigned threads);

struct Measured {
    Result result;
    std::size_t height = 0;  // upright
    std::size_t width = 0;
};

Measured measure(const Encoded &image);

// Writes the upright image as 3 bytes per pixel. It must have the measures given, else it failed.
Result decode_whole(const Encoded &image, std::size_t height, std::size_t width, std::uint8_t *out);

}  // namespace unstarve
