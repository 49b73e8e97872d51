#include "layout.h"

#include <cstdio>
#include <iterator>

namespace unstarve {
namespace {

constexpr std::uint64_t max_tensor_bytes = std::uint64_t{1} << 62;

struct Type {
    std::string_view name;
    std::uint64_t itemsize;
};

constexpr Type types[] = {
    {"float32", 4},         {"float64", 8},         {"float16", 2},        {"bfloat16", 2},
    {"int64", 8},           {"int32", 4},           {"int16", 2},          {"int8", 1},
    {"uint8", 1},           {"bool", 1},            {"complex64", 8},      {"complex128", 16},
    {"uint16", 2},          {"uint32", 4},          {"uint64", 8},         {"complex32", 4},
    {"float8_e4m3fn", 1},   {"float8_e5m2", 1},     {"float8_e4m3fnuz", 1}, {"float8_e5m2fnuz", 1},
    {"float8_e8m0fnu", 1},
};

// Length of the UTF-8 sequence at the start of `text`; 0 where there is none.
std::size_t utf8_length(std::string_view text) {
    const auto at = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
    const auto follows = [&](std::size_t i) { return (at(i) & 0xC0u) == 0x80u; };
    const unsigned first = at(0);
    if (first < 0x80) {
        return 1;
    }
    if (first >= 0xC2 && first <= 0xDF && follows(1)) {
        return 2;
    }
    if (first >= 0xE0 && first <= 0xEF && follows(1) && follows(2)) {
        const bool too_long = first == 0xE0 && at(1) < 0xA0;
        const bool surrogate = first == 0xED && at(1) >= 0xA0;
        return too_long || surrogate ? 0 : 3;
    }
    if (first >= 0xF0 && first <= 0xF4 && follows(1) && follows(2) && follows(3)) {
        const bool too_long = first == 0xF0 && at(1) < 0x90;
        const bool too_far = first == 0xF4 && at(1) >= 0x90;
        return too_long || too_far ? 0 : 4;
    }
    return 0;
}

}  // namespace

std::uint64_t itemsize_of(std::string_view dtype) {
    for (const Type &type : types) {
        if (type.name == dtype) {
            return type.itemsize;
        }
    }
    return 0;
}

std::uint64_t tensor_bytes(std::string_view dtype, const std::vector<std::int64_t> &shape) {
    // Without the sizes of 0: neither numpy nor torch makes an empty tensor whose other sizes are too large.
    std::uint64_t bytes = itemsize_of(dtype);
    bool empty = false;
    for (const std::int64_t size : shape) {
        if (size < 0) {
            throw Damaged{"a tensor has a negative size"};
        }
        empty = empty || size == 0;
        if (size != 0 && bytes > max_tensor_bytes / static_cast<std::uint64_t>(size)) {
            throw Damaged{"a tensor is larger than any file"};
        }
        bytes *= size == 0 ? 1 : static_cast<std::uint64_t>(size);
    }
    return empty ? 0 : bytes;
}

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const std::size_t length = utf8_length(text);
        if (length == 0) {
            return false;
        }
        text.remove_prefix(length);
    }
    return true;
}

std::string quoted(std::string_view text) {
    const std::string_view escaped = "\"\\\b\f\n\r\t";
    const std::string_view names = "\"\\bfnrt";
    std::string out = "\"";
    for (const char c : text) {
        const std::size_t at = escaped.find(c);
        if (at != std::string_view::npos) {
            out += '\\';
            out += names[at];
        } else if (static_cast<unsigned char>(c) < 0x20) {
            char code[8];
            std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
            out += code;
        } else {
            out += c;
        }
    }
    return out + '"';
}

std::string tensor_text(std::string_view dtype, const std::vector<std::int64_t> &shape) {
    std::string out = "[\"t\",\"" + std::string(dtype) + "\",[";
    for (std::size_t i = 0; i < shape.size(); ++i) {
        out += (i == 0 ? "" : ",") + std::to_string(shape[i]);
    }
    return out + "]]";
}

}  // namespace unstarve
