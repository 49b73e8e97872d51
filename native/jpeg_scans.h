// Count the scans of a JPEG: each can code all pixels again, so that a small file can take hours.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unstarve {

// The number of scans up to the end marker; 1 if the first holds the whole image, because none is read after it. Any
// bytes are safe. Fallback: fixes/datasets/images/pillow_decoder.py.
std::size_t count_jpeg_scans(const std::uint8_t *data, std::size_t size);

// The most scans that are decoded for an image of this size. Encoders write about ten; hand-made files up to a hundred.
std::uint64_t max_jpeg_scans(std::uint64_t pixels);

}  // namespace unstarve
