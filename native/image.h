// Types that all image code shares.
#pragma once

#include <cstddef>
#include <stdexcept>

namespace unstarve {

// What is wrong with an image, for people to read.
class ImageError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

constexpr char no_memory[] = "there is not enough memory to decode it";

struct Extent {
    std::size_t height;
    std::size_t width;
};

// A part of an image, within it and not empty.
struct Window {
    std::size_t top;
    std::size_t left;
    std::size_t height;
    std::size_t width;
};

// The size to which an image is resized, and the row and column where the wanted part begins.
struct Resized {
    Extent size;
    std::size_t top = 0;
    std::size_t left = 0;
};

}  // namespace unstarve
