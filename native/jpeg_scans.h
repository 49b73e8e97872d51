// How many times over the pixels of a JPEG are coded: a small file can say something of each pixel hundreds of times.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unstarve {

// The scans up to the end marker: 1 where the first holds all of the image, since none is read behind it. Any bytes are
// safe. Fallback: fixes/datasets/images/pillow_decoder.py.
std::size_t count_jpeg_scans(const std::uint8_t *data, std::size_t size);

// The most scans with which an image of so many pixels is decoded. Encoders write about ten, and a hundred by hand.
std::uint64_t max_jpeg_scans(std::uint64_t pixels);

}  // namespace unstarve
