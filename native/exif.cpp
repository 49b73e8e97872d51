#include "exif.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace unstarve {
namespace {

constexpr std::string_view exif_name("Exif\0\0", 6);
constexpr unsigned orientation_tag = 0x0112;

// The TIFF inside an EXIF segment: numbers in either byte order, at offsets that may lie anywhere.
class Tiff {
  public:
    Tiff(const std::uint8_t *data, std::size_t size) : data_(data), size_(size) {
        little_ = size >= 2 && data[0] == 'I' && data[1] == 'I';
        const bool big = size >= 2 && data[0] == 'M' && data[1] == 'M';
        valid_ = (little_ || big) && number(2, 2) == 42;
    }

    bool valid() const { return valid_; }

    // 0 where the bytes are not there.
    std::uint32_t number(std::size_t at, std::size_t bytes) const {
        if (at > size_ || bytes > size_ - at) {
            return 0;
        }
        std::uint32_t value = 0;
        for (std::size_t i = 0; i < bytes; ++i) {
            value = value << 8 | data_[at + (little_ ? bytes - 1 - i : i)];
        }
        return value;
    }

  private:
    const std::uint8_t *data_;
    std::size_t size_;
    bool little_ = false;
    bool valid_ = false;
};

int in_range(std::uint32_t orientation) {
    return orientation >= 1 && orientation <= 8 ? static_cast<int>(orientation) : 0;
}

}  // namespace

int exif_orientation(const std::uint8_t *segment, std::size_t size) {
    if (size < exif_name.size() || std::memcmp(segment, exif_name.data(), exif_name.size()) != 0) {
        return 0;
    }
    const Tiff tiff(segment + exif_name.size(), size - exif_name.size());
    if (!tiff.valid()) {
        return 0;
    }
    const std::size_t directory = tiff.number(4, 4);
    const std::size_t entries = tiff.number(directory, 2);
    for (std::size_t i = 0; i < entries; ++i) {
        const std::size_t entry = directory + 2 + i * 12;
        if (tiff.number(entry, 2) != orientation_tag || tiff.number(entry + 4, 4) != 1) {
            continue;
        }
        switch (tiff.number(entry + 2, 2)) {  // the type of the number, which decides how long it is
            case 1: return in_range(tiff.number(entry + 8, 1));
            case 3: return in_range(tiff.number(entry + 8, 2));
            case 4: return in_range(tiff.number(entry + 8, 4));
            default: return 0;
        }
    }
    return 0;
}

int xmp_orientation(const std::uint8_t *segment, std::size_t size) {
    constexpr std::string_view namespace_name("http://ns.adobe.com/xap/1.0/\0", 29);
    constexpr std::string_view key("tiff:Orientation");
    const std::string_view text(reinterpret_cast<const char *>(segment), size);
    if (text.substr(0, namespace_name.size()) != namespace_name) {
        return 0;
    }
    // As an attribute, tiff:Orientation="6", or as an element, <tiff:Orientation>6<.
    for (std::size_t at = text.find(key); at != text.npos; at = text.find(key, at + 1)) {
        std::string_view value = text.substr(at + key.size());
        const std::size_t opening = value.substr(0, 2) == "=\"" ? 2 : value.substr(0, 1) == ">" ? 1 : 0;
        value = value.substr(opening);
        if (opening != 0 && !value.empty() && value[0] >= '0' && value[0] <= '9') {
            return in_range(static_cast<std::uint32_t>(value[0] - '0'));
        }
    }
    return 0;
}

Walk upright_walk(int orientation, std::size_t stored_height, std::size_t stored_width) {
    const auto row = static_cast<std::ptrdiff_t>(stored_width);
    const std::ptrdiff_t right = row - 1;
    const std::ptrdiff_t bottom = (static_cast<std::ptrdiff_t>(stored_height) - 1) * row;
    switch (orientation) {
        case 2: return {right, row, -1};
        case 3: return {bottom + right, -row, -1};
        case 4: return {bottom, -row, 1};
        case 5: return {0, 1, row};
        case 6: return {bottom, 1, -row};
        case 7: return {bottom + right, -1, -row};
        case 8: return {right, -1, row};
        default: return {0, row, 1};
    }
}

}  // namespace unstarve
