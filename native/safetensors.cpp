#include <algorithm>
#include <set>
#include <string_view>

#include "layout.h"

namespace unstarve {
namespace {

constexpr std::uint64_t head_bytes = 4096;
constexpr std::uint64_t max_header_bytes = 100'000'000;  // the format's own limit
constexpr std::size_t max_tensors = 65536;
constexpr std::size_t max_numbers = 64;  // in a list: the dimensions of a tensor

[[noreturn]] void fail() { throw Damaged{"its header is not what .safetensors has"}; }

std::string_view dtype_of(std::string_view name) {
    struct Pair {
        std::string_view name, dtype;
    };
    constexpr Pair pairs[] = {
        {"F32", "float32"},        {"F64", "float64"},     {"F16", "float16"},       {"BF16", "bfloat16"},
        {"I64", "int64"},          {"I32", "int32"},       {"I16", "int16"},         {"I8", "int8"},
        {"U8", "uint8"},           {"BOOL", "bool"},       {"U16", "uint16"},        {"U32", "uint32"},
        {"U64", "uint64"},         {"C64", "complex64"},   {"F8_E4M3", "float8_e4m3fn"}, {"F8_E5M2", "float8_e5m2"},
        {"F8_E8M0", "float8_e8m0fnu"},
    };
    for (const Pair &pair : pairs) {
        if (pair.name == name) {
            return pair.dtype;
        }
    }
    throw Damaged{"it holds elements of a type that is not known: " + std::string(name.substr(0, 20))};
}

// Just the JSON that the header may be made of: objects, strings, and lists of whole numbers.
class Json {
  public:
    explicit Json(std::string_view text) : text_(text) {}

    bool accept(char token) {
        skip_space();
        if (text_.empty() || text_.front() != token) {
            return false;
        }
        text_.remove_prefix(1);
        return true;
    }
    void expect(char token) {
        if (!accept(token)) {
            fail();
        }
    }
    std::string string() {
        expect('"');
        std::string out;
        for (;;) {
            const unsigned char c = take();
            if (c == '"') {
                if (!is_utf8(out)) {
                    fail();
                }
                return out;
            }
            if (c < 0x20) {
                fail();
            }
            if (c == '\\') {
                escape(out);
            } else {
                out += static_cast<char>(c);
            }
        }
    }
    std::vector<std::int64_t> numbers() {
        expect('[');
        std::vector<std::int64_t> all;
        if (accept(']')) {
            return all;
        }
        do {
            if (all.size() == max_numbers) {
                fail();
            }
            all.push_back(number());
        } while (accept(','));
        expect(']');
        return all;
    }
    // Calls `member` with each name, which must then take the value.
    template <typename Member>
    void object(const Member &member) {
        expect('{');
        if (accept('}')) {
            return;
        }
        std::set<std::string> seen;
        do {
            const std::string name = string();
            expect(':');
            if (!seen.insert(name).second || seen.size() > max_tensors) {
                fail();
            }
            member(name);
        } while (accept(','));
        expect('}');
    }
    void end() {
        skip_space();
        if (!text_.empty()) {
            fail();
        }
    }

  private:
    void skip_space() {
        while (!text_.empty() && std::string_view(" \n\r\t").find(text_.front()) != std::string_view::npos) {
            text_.remove_prefix(1);
        }
    }
    unsigned char take() {
        if (text_.empty()) {
            fail();
        }
        const char c = text_.front();
        text_.remove_prefix(1);
        return static_cast<unsigned char>(c);
    }
    std::int64_t number() {
        skip_space();
        std::int64_t value = 0;
        std::size_t digits = 0;
        while (digits < text_.size() && text_[digits] >= '0' && text_[digits] <= '9') {
            if (digits == 18) {
                throw Damaged{"a tensor is larger than any file"};
            }
            value = value * 10 + (text_[digits++] - '0');
        }
        if (digits == 0 || (digits > 1 && text_.front() == '0')) {
            fail();
        }
        text_.remove_prefix(digits);
        return value;
    }
    unsigned code_unit() {
        unsigned value = 0;
        for (int i = 0; i < 4; ++i) {
            const unsigned char c = take();
            value <<= 4;
            if (c >= '0' && c <= '9') {
                value |= static_cast<unsigned>(c - '0');
            } else if (c >= 'a' && c <= 'f') {
                value |= static_cast<unsigned>(c - 'a' + 10);
            } else if (c >= 'A' && c <= 'F') {
                value |= static_cast<unsigned>(c - 'A' + 10);
            } else {
                fail();
            }
        }
        return value;
    }
    void escape(std::string &out) {
        const unsigned char c = take();
        const std::string_view names = "\"\\/bfnrt";
        const std::string_view meant = "\"\\/\b\f\n\r\t";
        const std::size_t at = names.find(static_cast<char>(c));
        if (at != std::string_view::npos) {
            out += meant[at];
            return;
        }
        if (c != 'u') {
            fail();
        }
        unsigned code = code_unit();
        if (code >= 0xD800 && code <= 0xDBFF && text_.substr(0, 2) == "\\u") {
            text_.remove_prefix(2);
            const unsigned low = code_unit();
            if (low < 0xDC00 || low > 0xDFFF) {
                fail();
            }
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        } else if (code >= 0xD800 && code <= 0xDFFF) {
            fail();
        }
        append_utf8(code, out);
    }
    static void append_utf8(unsigned code, std::string &out) {
        const auto put = [&out](unsigned byte) { out += static_cast<char>(byte); };
        if (code < 0x80) {
            put(code);
        } else if (code < 0x800) {
            put(0xC0 | code >> 6);
            put(0x80 | (code & 0x3F));
        } else if (code < 0x10000) {
            put(0xE0 | code >> 12);
            put(0x80 | (code >> 6 & 0x3F));
            put(0x80 | (code & 0x3F));
        } else {
            put(0xF0 | code >> 18);
            put(0x80 | (code >> 12 & 0x3F));
            put(0x80 | (code >> 6 & 0x3F));
            put(0x80 | (code & 0x3F));
        }
    }

    std::string_view text_;
};

struct Entry {
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> offsets;
};

Entry entry_of(Json &json) {
    Entry entry;
    int members = 0;
    json.object([&](const std::string &name) {
        ++members;
        if (name == "dtype") {
            entry.dtype = json.string();
        } else if (name == "shape") {
            entry.shape = json.numbers();
        } else if (name == "data_offsets") {
            entry.offsets = json.numbers();
        } else {
            fail();
        }
    });
    if (members != 3 || entry.offsets.size() != 2) {
        fail();
    }
    return entry;
}

}  // namespace

Layout safetensors_layout(const Source &source) {
    std::vector<std::uint8_t> head = source.bytes(0, std::min(head_bytes, source.size_bytes()));
    if (head.size() < 8) {
        throw Damaged{"it is too short to be a .safetensors file"};
    }
    std::uint64_t length = 0;
    for (unsigned i = 0; i < 8; ++i) {
        length |= std::uint64_t{head[i]} << (8 * i);
    }
    if (length > max_header_bytes || length > source.size_bytes() - 8) {
        throw Damaged{"its header is longer than the file, or than any may be"};
    }
    if (8 + length > head.size()) {
        head = source.bytes(0, 8 + length);
    }
    const auto data = static_cast<std::int64_t>(8 + length);
    const std::int64_t data_bytes = static_cast<std::int64_t>(source.size_bytes()) - data;
    Json json({reinterpret_cast<const char *>(head.data()) + 8, static_cast<std::size_t>(length)});
    Layout layout;
    layout.structure = "[\"d\",[";
    json.object([&](const std::string &name) {
        if (name == "__metadata__") {
            json.object([&](const std::string &) { json.string(); });
            return;
        }
        const Entry entry = entry_of(json);
        const std::string_view dtype = dtype_of(entry.dtype);
        const std::int64_t first = entry.offsets[0];
        const std::int64_t end = entry.offsets[1];
        if (first > end || end > data_bytes ||
            tensor_bytes(dtype, entry.shape) != static_cast<std::uint64_t>(end - first)) {
            throw Damaged{"a tensor lies outside the file, or is not of the size that its shape says"};
        }
        layout.structure += (layout.columns.empty() ? "[" : ",[") + quoted(name) + "," +
                            tensor_text(dtype, entry.shape) + "]";
        layout.columns.push_back(data + first);
    });
    json.end();
    layout.structure += "]]";
    return layout;
}

}  // namespace unstarve
