// Words that everything about pictures shares.
#pragma once

#include <cstddef>
#include <stdexcept>

namespace unstarve {

// What is wrong with a picture, in words for a person.
class PictureError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

struct Extent {
    std::size_t height;
    std::size_t width;
};

// A part of a picture, within it and not empty.
struct Window {
    std::size_t top;
    std::size_t left;
    std::size_t height;
    std::size_t width;
};

}  // namespace unstarve
