#include "formats.h"

#include <cstring>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "layout.h"

namespace {

using unstarve::Format;
using unstarve::Layout;

class Memory final : public unstarve::Source {
  public:
    explicit Memory(const std::string &data) : Source(data.size()), data_(data) {}

  private:
    std::uint64_t fetch(std::uint64_t offset, std::uint8_t *to, std::uint64_t length) const override {
        std::memcpy(to, data_.data() + offset, length);
        return length;
    }
    const std::string &data_;
};

std::string little_endian(std::uint64_t value, unsigned bytes) {
    std::string text;
    for (unsigned i = 0; i < bytes; ++i) {
        text += static_cast<char>(value >> (8 * i) & 0xff);
    }
    return text;
}

std::string zip(const std::vector<std::pair<std::string, std::string>> &records) {
    std::string all;
    std::string directory;
    for (const auto &[name, content] : records) {
        const std::string sizes = little_endian(content.size(), 4) + little_endian(content.size(), 4);
        const std::string lengths = little_endian(name.size(), 2) + little_endian(0, 2);
        directory += std::string("PK\1\2", 4) + std::string(16, '\0') + sizes + lengths + std::string(10, '\0') +
                     little_endian(all.size(), 4) + name;
        all += std::string("PK\3\4", 4) + std::string(14, '\0') + sizes + lengths + name + content;
    }
    const std::string count = little_endian(records.size(), 2);
    const std::string end = std::string("PK\5\6", 4) + std::string(4, '\0') + count + count +
                            little_endian(directory.size(), 4) + little_endian(all.size(), 4) + std::string(2, '\0');
    return all + directory + end;
}

std::string text(const std::string &value) { return "X" + little_endian(value.size(), 4) + value; }

std::string tensor(const std::string &key, char elements, char rows, char columns) {
    const std::string storage = "(" + text("storage") + "ctorch\nFloatStorage\nq\1" + text(key) + text("cpu") + "K" +
                                elements + "tQ";
    return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + "K" + std::string(1, '\0') + "K" + rows + "K" + columns +
           "\x86K" + columns + "K\1\x86\x89" + "ccollections\nOrderedDict\n)Rt" + "R";
}

// {"x": a 2×3 tensor, "y": [a 1×4 tensor, 7, 1.5]}
std::string pt_file() {
    const std::string program = "\x80\2}q\5(" + text("x") + tensor("0", 6, 2, 3) + text("y") + "](" +
                                tensor("1", 4, 1, 4) + "K\7G?\xf8" + std::string(6, '\0') + "eu.";
    return zip({{"a/data.pkl", program},
                {"a/byteorder", "little"},
                {"a/data/0", std::string(24, 'p')},
                {"a/data/1", std::string(16, 'q')},
                {"a/version", "3\n"}});
}

std::string npy_file() {
    const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";
    return std::string("\x93NUMPY\1\0", 8) + little_endian(header.size(), 2) + header + std::string(24, 'n');
}

std::string safetensors_file() {
    const std::string header =
        "{\"__metadata__\":{\"k\":\"v\"},\"x\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"\\u00fc\\ud83d\\ude42\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[24,28]}}";
    return little_endian(header.size(), 8) + header + std::string(28, 's');
}

Layout layout(Format format, const std::string &data) { return unstarve::layout_of(format, Memory(data)); }

void finds_what_lies_where() {
    const Layout pt = layout(Format::pt, pt_file());
    CHECK(pt.structure == "[\"d\",[[\"x\",[\"t\",\"float32\",[2,3]]],[\"y\",[\"l\",[[\"t\",\"float32\",[1,4]],\"i\",\"f\"]]]]]");
    CHECK(pt.columns.size() == 4);
    CHECK(pt_file().substr(static_cast<std::size_t>(pt.columns[0]), 24) == std::string(24, 'p'));
    CHECK(pt_file().substr(static_cast<std::size_t>(pt.columns[1]), 16) == std::string(16, 'q'));
    CHECK(pt.columns[2] == 7);
    const Layout npy = layout(Format::npy, npy_file());
    CHECK(npy.structure == "[\"t\",\"float32\",[2,3]]");
    CHECK(npy_file()[static_cast<std::size_t>(npy.columns[0])] == 'n');
    const Layout safetensors = layout(Format::safetensors, safetensors_file());
    CHECK(safetensors.structure == "[\"d\",[[\"x\",[\"t\",\"float32\",[2,3]]],[\"ü🙂\",[\"t\",\"uint8\",[4]]]]]");
    CHECK(safetensors.columns[1] == safetensors.columns[0] + 24);
}

void says_why_not() {
    CHECK_THROWS(layout(Format::pt, ""), unstarve::Unsupported);
    CHECK_THROWS(layout(Format::pt, std::string(5000, 'x')), unstarve::Unsupported);
    CHECK_THROWS(layout(Format::npy, ""), unstarve::Damaged);
    CHECK_THROWS(layout(Format::npy, npy_file().substr(0, npy_file().size() - 1)), unstarve::Damaged);
    CHECK_THROWS(layout(Format::safetensors, "{}"), unstarve::Damaged);
    CHECK_THROWS(layout(Format::safetensors, little_endian(1u << 31, 8) + "{}"), unstarve::Damaged);
}

std::string repeated(const std::string &text, std::size_t count) {
    std::string all;
    for (std::size_t i = 0; i < count; ++i) {
        all += text;
    }
    return all;
}

std::string reason_for(const std::string &program) {
    try {
        layout(Format::pt, zip({{"a/data.pkl", "\x80\2" + program + "."}, {"a/data/0", std::string(24, 'p')}}));
    } catch (const unstarve::Unsupported &unsupported) {
        return unsupported.reason;
    }
    return "";
}

// Under a sanitizer each of these would take gigabytes, or minutes, if anything were copied for each use.
void nothing_is_copied_for_each_use() {
    const std::string none("h\0", 2);
    const std::string rest = "it holds more than tensors, numbers and plain containers";
    CHECK(reason_for("]((" + repeated("N", 30000) + std::string("tq\0", 3) + repeated(none + "Q", 30000) + "e") == rest);
    CHECK(reason_for("](" + text(std::string(100000, 'k')) + std::string("q\0", 2) +
                     repeated("}" + none + "K\1s", 50000) + "e") == rest);
    CHECK(reason_for("](}" + text(std::string(1000000, 'k')) + std::string("K\1sq\0", 5) + repeated(none, 2000) + "e") ==
          "it repeats itself very often");
    CHECK(reason_for("](" + repeated("]", 600000) + "e") == "its pickle is very long");
    // The same tensor and the same key, used twice, are found twice.
    const Layout twice = layout(
        Format::pt, zip({{"a/data.pkl", "\x80\2](" + tensor("0", 6, 2, 3) + std::string("q\0", 2) + none + "}" + text("k") +
                                            "q\3" + none + "s}h\3" + none + "s}(h\3K\1" + text("k") + "K\2ue."},
                         {"a/data/0", std::string(24, 'p')}}));
    const std::string found = "[\"t\",\"float32\",[2,3]]";
    CHECK(twice.structure == "[\"l\",[" + found + "," + found + ",[\"d\",[[\"k\"," + found + "]]],[\"d\",[[\"k\"," + found +
                                 "]]],[\"d\",[[\"k\",\"i\"]]]]]");
    CHECK(twice.columns.back() == 2);
}

void sizes_do_not_overflow() {
    const std::int64_t large = std::int64_t{1} << 40;
    CHECK_THROWS(unstarve::tensor_bytes("float32", {large, large}), unstarve::Damaged);
    CHECK_THROWS(unstarve::tensor_bytes("float32", {0, large, large}), unstarve::Damaged);
    CHECK_THROWS(unstarve::tensor_bytes("float32", {large, large, 0}), unstarve::Damaged);
    CHECK(unstarve::tensor_bytes("float32", {0, large}) == 0);
    CHECK(unstarve::tensor_bytes("uint8", {large, 3}) == static_cast<std::uint64_t>(3 * large));
}

// Every tensor lies inside the file. Checked where all leaves are tensors, which makes the text easy to read.
void lies_inside(const Layout &found, std::size_t file_bytes) {
    const std::string opening = "[\"t\",\"";
    std::vector<std::uint64_t> sizes;
    for (std::size_t at = 0; (at = found.structure.find(opening, at)) != std::string::npos;) {
        at += opening.size();
        const std::size_t dtype_end = found.structure.find('"', at);
        const std::size_t shape_end = found.structure.find(']', dtype_end);
        std::istringstream numbers(found.structure.substr(dtype_end + 3, shape_end - dtype_end - 3));
        std::vector<std::int64_t> shape;
        for (std::string size; std::getline(numbers, size, ',');) {
            shape.push_back(std::stoll(size));
        }
        sizes.push_back(unstarve::tensor_bytes(found.structure.substr(at, dtype_end - at), shape));
    }
    if (sizes.size() != found.columns.size()) {
        return;
    }
    for (std::size_t leaf = 0; leaf < sizes.size(); ++leaf) {
        CHECK(found.columns[leaf] >= 0);
        CHECK(sizes[leaf] <= file_bytes);
        CHECK(static_cast<std::uint64_t>(found.columns[leaf]) <= file_bytes - sizes[leaf]);
    }
}

// Whatever is done to a file, the answer is a layout inside of it, or a reason.
void survives_mutations(Format format, const std::string &original, unsigned count) {
    std::mt19937 random(static_cast<unsigned>(format) + 1);
    const auto below = [&random](std::size_t limit) { return random() % limit; };
    unsigned found = 0;
    for (unsigned i = 0; i < count; ++i) {
        std::string data = original;
        for (std::size_t change = 0; change <= below(3) && data.size() > 1; ++change) {
            const std::size_t at = below(data.size());
            const char values[] = {0, 1, 0x7f, static_cast<char>(0x80), static_cast<char>(0xff),
                                   static_cast<char>(below(256))};
            switch (below(4)) {
                case 0: data.erase(at, 1 + below(40)); break;
                case 1: data.insert(at, data.substr(at, 1 + below(40))); break;
                default: data[at] = values[below(6)];
            }
        }
        try {
            const Layout layout_found = layout(format, data);
            ++found;
            lies_inside(layout_found, data.size());
        } catch (const unstarve::Unsupported &unsupported) {
            CHECK(!unsupported.reason.empty());
        } catch (const unstarve::Damaged &damaged) {
            CHECK(!damaged.reason.empty());
        }
    }
    CHECK(found > 0 && found < count);
}

}  // namespace

int main() {
    finds_what_lies_where();
    says_why_not();
    nothing_is_copied_for_each_use();
    sizes_do_not_overflow();
    survives_mutations(Format::pt, pt_file(), 6000);
    survives_mutations(Format::npy, npy_file(), 3000);
    survives_mutations(Format::safetensors, safetensors_file(), 6000);
}
