#include "exif.h"

#include <bitset>
#include <cstring>
#include <optional>

namespace unstarve {
namespace {

constexpr std::string_view exif_name("Exif\0\0", 6);
constexpr std::string_view xmp_name("http://ns.adobe.com/xap/1.0/\0", 29);
constexpr std::uint64_t orientation_tag = 0x0112;

bool begins_with(std::string_view text, std::string_view name) { return text.substr(0, name.size()) == name; }

// The TIFF inside EXIF: numbers in either byte order, at offsets that may lie anywhere.
class Tiff {
  public:
    explicit Tiff(std::string_view bytes) : bytes_(bytes), little_(begins_with(bytes, "II")) {}

    // As Pillow has it, which takes the 42 in either order, and with big numbers also 43.
    bool valid() const {
        using namespace std::string_view_literals;
        const std::string_view start = bytes_.substr(0, 4);
        return bytes_.size() >= 8 && (start == "II*\0"sv || start == "II\0*"sv || start == "MM\0*"sv ||
                                      start == "MM*\0"sv || start == "MM\0+"sv);
    }

    std::size_t size() const { return bytes_.size(); }
    bool holds(std::uint64_t at, std::uint64_t bytes) const { return at <= size() && bytes <= size() - at; }

    // Of bytes that are there.
    std::uint64_t number(std::size_t at, std::size_t bytes) const {
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < bytes; ++i) {
            value = value << 8 | static_cast<std::uint8_t>(bytes_[at + (little_ ? bytes - 1 - i : i)]);
        }
        return value;
    }

  private:
    std::string_view bytes_;
    bool little_;
};

// The types of a field: those whose numbers can state an orientation, and others that only take room.
enum Type : std::uint64_t {
    byte = 1,
    ascii = 2,
    whole_16 = 3,
    whole_32 = 4,
    ratio = 5,
    signed_8 = 6,
    undefined = 7,
    signed_16 = 8,
    signed_32 = 9,
    signed_ratio = 10,
    real_32 = 11,
    real_64 = 12,
    directory = 13,
    whole_64 = 16,
};

// Of one number; 0 for a type that nobody knows.
std::size_t bytes_of(std::uint64_t type) {
    switch (type) {
        case byte: case ascii: case signed_8: case undefined: return 1;
        case whole_16: case signed_16: return 2;
        case whole_32: case signed_32: case real_32: case directory: return 4;
        case ratio: case signed_ratio: case real_64: case whole_64: return 8;
        default: return 0;
    }
}

template <typename Real, typename Whole>
double real_of(std::uint64_t number) {
    const auto bits = static_cast<Whole>(number);
    Real value;
    static_assert(sizeof value == sizeof bits);
    std::memcpy(&value, &bits, sizeof value);
    return static_cast<double>(value);
}

// The first number of a field; 0 for a type that is none.
double value_of(const Tiff &tiff, std::size_t at, std::uint64_t type) {
    switch (type) {
        case whole_16: case whole_32: case signed_8: case signed_16: case signed_32: case directory: case whole_64:
            return static_cast<double>(tiff.number(at, bytes_of(type)));  // negative ones are out of range as well
        case ratio: return static_cast<double>(tiff.number(at, 4)) / static_cast<double>(tiff.number(at + 4, 4));
        case signed_ratio: {
            const auto part = [&](std::size_t from) { return static_cast<std::int32_t>(tiff.number(from, 4)); };
            return static_cast<double>(part(at)) / static_cast<double>(part(at + 4));
        }
        case real_32: return real_of<float, std::uint32_t>(tiff.number(at, 4));
        case real_64: return real_of<double, std::uint64_t>(tiff.number(at, 8));
        default: return 0;
    }
}

int in_range(double orientation) {
    for (int known = 2; known <= 8; ++known) {
        if (orientation == known) {
            return known;
        }
    }
    return 1;
}

// Nothing where no orientation is stated; 1 where it, or all of the EXIF, makes no sense.
std::optional<int> exif_orientation(std::string_view exif) {
    for (int i = 0; i < 2 && begins_with(exif, exif_name); ++i) {
        exif.remove_prefix(exif_name.size());
    }
    if (exif.empty()) {
        return std::nullopt;
    }
    const Tiff tiff(exif);
    if (!tiff.valid()) {
        return 1;
    }
    std::uint64_t entry = tiff.number(4, 4);
    if (!tiff.holds(entry, 2)) {
        return std::nullopt;
    }
    std::bitset<1 << 16> known;   // tags: of several fields the first counts
    std::uint64_t elsewhere = 0;  // bytes of fields that lie outside of the list
    const std::uint64_t end = entry + 2 + tiff.number(entry, 2) * 12;
    for (entry += 2; entry < end && tiff.holds(entry, 12); entry += 12) {
        const std::uint64_t tag = tiff.number(entry, 2);
        const std::uint64_t type = tiff.number(entry + 2, 2);
        const std::uint64_t bytes = tiff.number(entry + 4, 4) * bytes_of(type);
        if (bytes == 0 || known[tag]) {
            continue;
        }
        std::uint64_t at = entry + 8;
        if (bytes > 4) {
            at = tiff.number(at, 4);
            elsewhere += bytes;
            if (elsewhere > tiff.size()) {
                continue;  // more than there can be
            }
            if (!tiff.holds(at, bytes)) {
                return std::nullopt;  // cut off: the rest is not looked at
            }
        }
        if (tag == orientation_tag) {
            return in_range(value_of(tiff, at, type));
        }
        known[tag] = true;
    }
    return std::nullopt;
}

int xmp_orientation(std::string_view text) {
    constexpr std::string_view key("tiff:Orientation");
    // As an attribute, tiff:Orientation="6", or as an element, <tiff:Orientation>6<.
    for (std::size_t at = text.find(key); at != text.npos; at = text.find(key, at + 1)) {
        std::string_view value = text.substr(at + key.size());
        const std::size_t opening = begins_with(value, "=\"") ? 2 : begins_with(value, ">") ? 1 : 0;
        value = value.substr(opening);
        if (opening != 0 && !value.empty() && value[0] >= '0' && value[0] <= '9') {
            return in_range(value[0] - '0');
        }
    }
    return 1;
}

}  // namespace

void Metadata::add_app1(const std::uint8_t *segment, std::size_t size) {
    const std::string_view bytes(reinterpret_cast<const char *>(segment), size);
    if (begins_with(bytes, xmp_name)) {
        xmp_ = bytes.substr(xmp_name.size());
    } else if (begins_with(bytes, exif_name) && exif_.empty()) {
        exif_ = bytes;
    } else if (begins_with(bytes, exif_name)) {
        if (joined_.empty()) {
            joined_.assign(exif_.begin(), exif_.end());
        }
        joined_.insert(joined_.end(), bytes.begin() + exif_name.size(), bytes.end());
        exif_ = {joined_.data(), joined_.size()};
    }
}

int Metadata::orientation() const {
    const std::optional<int> stated = exif_orientation(exif_);
    return stated ? *stated : xmp_orientation(xmp_);
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
