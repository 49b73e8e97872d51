#include <algorithm>
#include <cctype>
#include <string_view>

#include "layout.h"

namespace unstarve {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::uint64_t head_bytes = 4096;
constexpr std::uint64_t max_header_bytes = std::uint64_t{64} << 10;  // numpy itself takes no more than 10,000

// Reads the header as numpy writes it: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class Header {
  public:
    explicit Header(std::string_view text) : text_(text) {}

    void expect(std::string_view token) {
        skip_space();
        if (text_.substr(0, token.size()) != token) {
            throw Unsupported{"its header is not written as numpy writes it"};
        }
        text_.remove_prefix(token.size());
    }
    bool accept(std::string_view token) {
        skip_space();
        if (text_.substr(0, token.size()) != token) {
            return false;
        }
        text_.remove_prefix(token.size());
        return true;
    }
    std::string_view until(char end) {
        const std::size_t at = std::min(text_.find(end), text_.size());
        const std::string_view found = text_.substr(0, at);
        text_.remove_prefix(at);
        return found;
    }
    std::int64_t number() {
        skip_space();
        std::int64_t value = 0;
        std::size_t digits = 0;
        while (digits < text_.size() && text_[digits] >= '0' && text_[digits] <= '9') {
            is_too_large_ = is_too_large_ || digits == 18;
            value = is_too_large_ ? 0 : value * 10 + (text_[digits] - '0');
            ++digits;
        }
        if (digits == 0) {
            throw Unsupported{"its header is not written as numpy writes it"};
        }
        text_.remove_prefix(digits);
        return value;
    }
    void end() {
        skip_space();
        if (!text_.empty()) {
            throw Unsupported{"its header is not written as numpy writes it"};
        }
        if (is_too_large_) {
            throw Damaged{"a tensor is larger than any file"};
        }
    }

  private:
    void skip_space() {
        while (!text_.empty() && (text_.front() == ' ' || text_.front() == '\n')) {
            text_.remove_prefix(1);
        }
    }
    std::string_view text_;
    bool is_too_large_ = false;  // said at the end: what is no header at all is no damage
};

std::string_view dtype_of(std::string_view descr) {
    struct Pair {
        std::string_view descr, dtype;
    };
    constexpr Pair pairs[] = {
        {"<f4", "float32"}, {"<f8", "float64"},   {"<f2", "float16"},     {"<i8", "int64"},   {"<i4", "int32"},
        {"<i2", "int16"},   {"|i1", "int8"},      {"|u1", "uint8"},       {"|b1", "bool"},    {"<c8", "complex64"},
        {"<u2", "uint16"},  {"<u4", "uint32"},    {"<u8", "uint64"},      {"<c16", "complex128"},
    };
    for (const Pair &pair : pairs) {
        if (pair.descr == descr) {
            return pair.dtype;
        }
    }
    throw Unsupported{"it holds elements that torch has no type for, or of another byte order"};
}

}  // namespace

Layout npy_layout(const Source &source) {
    std::vector<std::uint8_t> head = source.bytes(0, std::min(head_bytes, source.size_bytes()));
    if (head.size() < 10 || !std::equal(magic.begin(), magic.end(), head.begin(), [](char a, std::uint8_t b) {
            return static_cast<std::uint8_t>(a) == b;
        })) {
        throw Damaged{"it does not start like a .npy file"};
    }
    const bool long_length = head[6] >= 2;
    if (head[6] < 1 || head[6] > 3 || (long_length && head.size() < 12)) {
        throw Unsupported{"it is of an unknown version"};
    }
    std::uint64_t length = head[8] | std::uint64_t{head[9]} << 8;
    if (long_length) {
        length |= std::uint64_t{head[10]} << 16 | std::uint64_t{head[11]} << 24;
    }
    const std::uint64_t start = long_length ? 12 : 10;
    if (length > max_header_bytes) {
        throw Unsupported{"its header is very long"};
    }
    if (start + length > head.size()) {
        head = source.bytes(0, start + length);
    }
    Header header({reinterpret_cast<const char *>(head.data()) + start, static_cast<std::size_t>(length)});
    header.expect("{");
    header.expect("'descr'");
    header.expect(":");
    header.expect("'");
    const std::string_view dtype = dtype_of(header.until('\''));
    header.expect("'");
    header.expect(",");
    header.expect("'fortran_order'");
    header.expect(":");
    const bool fortran = header.accept("True");
    if (!fortran) {
        header.expect("False");
    }
    header.expect(",");
    header.expect("'shape'");
    header.expect(":");
    header.expect("(");
    std::vector<std::int64_t> shape;
    while (!header.accept(")")) {
        shape.push_back(header.number());
        if (!header.accept(",")) {
            header.expect(")");
            break;
        }
    }
    header.accept(",");
    header.expect("}");
    header.end();
    if (fortran && shape.size() > 1) {
        throw Unsupported{"its columns lie together, not its rows"};
    }
    if (shape.size() > 64) {
        throw Unsupported{"it has very many dimensions"};
    }
    if (tensor_bytes(dtype, shape) > source.size_bytes() - (start + length)) {
        throw Damaged{"it is shorter than its header says"};
    }
    return {tensor_text(dtype, shape), {static_cast<std::int64_t>(start + length)}};
}

}  // namespace unstarve
