// A file of torch.save since 1.6: a zip archive, nothing compressed, with a pickle and a record per storage.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "layout.h"
#include "pickle.h"

namespace unstarve {
namespace {

constexpr std::uint64_t window_bytes = 4096;  // of the head and the tail, which for most files hold all we need
constexpr std::uint64_t max_directory_bytes = std::uint64_t{16} << 20;
constexpr std::size_t max_name_bytes = 0xFFFF;
constexpr std::uint64_t max_pickle_bytes = std::uint64_t{4} << 20;
constexpr std::size_t max_leaves = 4096;
constexpr std::size_t structure_bytes = std::size_t{256} << 10;  // beside what is in proportion to the pickle
constexpr std::size_t structure_bytes_per_byte = 8;
constexpr int max_nesting = 32;

[[noreturn]] void give_up(const char *reason) { throw Unsupported{reason}; }

std::uint64_t number(const std::uint8_t *at, unsigned bytes) {
    std::uint64_t value = 0;
    for (unsigned i = 0; i < bytes; ++i) {
        value |= std::uint64_t{at[i]} << (8 * i);
    }
    return value;
}

struct Record {
    std::string_view name;
    std::uint64_t header;  // where its local header starts
    std::uint64_t size;
    bool plain;  // neither compressed nor encrypted
};

class Archive {
  public:
    explicit Archive(const Source &source)
        : source_(source),
          head_(source.bytes(0, std::min(window_bytes, source.size_bytes()))),
          tail_start_(source.size_bytes() - std::min(window_bytes, source.size_bytes())),
          tail_(source.bytes(tail_start_, source.size_bytes() - tail_start_)) {
        read_directory();
    }

    bool has(std::string_view name) const { return record(name) != nullptr; }

    // Where the bytes of a record start; checked to lie inside the file.
    std::uint64_t start_of(std::string_view name, std::uint64_t &size) const {
        // A name longer than any is not looked for: one string may name the storages of very many tensors.
        const Record *const found = name.size() > max_name_bytes ? nullptr : record(name);
        if (found == nullptr || !found->plain) {
            give_up("a record that it refers to is missing or compressed");
        }
        const std::vector<std::uint8_t> local = bytes(found->header, 30);
        if (number(local.data(), 4) != 0x04034b50 || number(local.data() + 8, 2) != 0) {
            give_up("a record does not start like one");
        }
        const std::uint64_t start = found->header + 30 + number(local.data() + 26, 2) + number(local.data() + 28, 2);
        if (start > source_.size_bytes() || found->size > source_.size_bytes() - start) {
            throw Damaged{"a record goes past the end of the file"};
        }
        size = found->size;
        return start;
    }

    std::vector<std::uint8_t> content(const std::string &name, std::uint64_t most_bytes) const {
        std::uint64_t size = 0;
        const std::uint64_t start = start_of(name, size);
        if (size > most_bytes) {
            give_up("a record is very long");
        }
        return bytes(start, size);
    }

  private:
    void read_directory() {
        // torch writes no comment, so the last record is the last 22 bytes.
        if (tail_.size() < 22 || number(&tail_[tail_.size() - 22], 4) != 0x06054b50) {
            give_up("it does not end like a zip archive");
        }
        const std::uint8_t *const end = &tail_[tail_.size() - 22];
        const std::uint64_t count = number(end + 10, 2);
        const std::uint64_t size = number(end + 12, 4);
        const std::uint64_t start = number(end + 16, 4);
        if (number(end + 4, 4) != 0 || count == 0xFFFF || size == 0xFFFFFFFF || start == 0xFFFFFFFF ||
            size > max_directory_bytes) {
            give_up("it is a very large zip archive");
        }
        directory_ = bytes(start, size);
        std::uint64_t at = 0;
        for (std::uint64_t i = 0; i < count; ++i) {
            at = read_entry(at);
        }
        std::sort(records_.begin(), records_.end(), [](const Record &a, const Record &b) { return a.name < b.name; });
        if (std::adjacent_find(records_.begin(), records_.end(), [](const Record &a, const Record &b) {
                return a.name == b.name;
            }) != records_.end()) {
            give_up("it has two records of one name");
        }
    }

    std::uint64_t read_entry(std::uint64_t at) {
        if (directory_.size() - at < 46 || number(&directory_[at], 4) != 0x02014b50) {
            throw Damaged{"the directory of the zip archive is broken"};
        }
        const std::uint8_t *const entry = &directory_[at];
        const std::uint64_t name_bytes = number(entry + 28, 2);
        const std::uint64_t entry_bytes = 46 + name_bytes + number(entry + 30, 2) + number(entry + 32, 2);
        if (entry_bytes > directory_.size() - at) {
            throw Damaged{"the directory of the zip archive is broken"};
        }
        const std::string_view name(reinterpret_cast<const char *>(entry + 46), static_cast<std::size_t>(name_bytes));
        const std::uint64_t packed = number(entry + 20, 4);
        const std::uint64_t size = number(entry + 24, 4);
        const std::uint64_t header = number(entry + 42, 4);
        if (packed == 0xFFFFFFFF || size == 0xFFFFFFFF || header == 0xFFFFFFFF) {
            give_up("it is a very large zip archive");
        }
        const bool plain = number(entry + 10, 2) == 0 && (number(entry + 8, 2) & 1) == 0 && packed == size;
        if (records_.empty()) {
            prefix_ = std::string(name.substr(0, name.find('/'))) + "/";
        }
        records_.push_back({name, header, size, plain});
        return at + entry_bytes;
    }

    // nullptr: there is none.
    const Record *record(std::string_view name) const {
        const std::string whole = prefix_ + std::string(name);
        const auto found = std::lower_bound(records_.begin(), records_.end(), std::string_view(whole),
                                            [](const Record &a, std::string_view wanted) { return a.name < wanted; });
        return found != records_.end() && found->name == whole ? &*found : nullptr;
    }

    std::vector<std::uint8_t> bytes(std::uint64_t offset, std::uint64_t length) const {
        const auto copy = [](const std::vector<std::uint8_t> &from, std::uint64_t at, std::uint64_t count) {
            const auto first = from.begin() + static_cast<std::ptrdiff_t>(at);
            return std::vector<std::uint8_t>(first, first + static_cast<std::ptrdiff_t>(count));
        };
        if (offset <= head_.size() && length <= head_.size() - offset) {
            return copy(head_, offset, length);
        }
        if (offset >= tail_start_ && offset - tail_start_ <= tail_.size() &&
            length <= tail_.size() - (offset - tail_start_)) {
            return copy(tail_, offset - tail_start_, length);
        }
        return source_.bytes(offset, length);
    }

    const Source &source_;
    std::vector<std::uint8_t> head_;
    std::uint64_t tail_start_;
    std::vector<std::uint8_t> tail_;
    std::vector<std::uint8_t> directory_;
    std::vector<Record> records_;  // by name, which lies in the directory
    std::string prefix_;
};

std::string_view dtype_of_storage(std::string_view global) {
    struct Pair {
        std::string_view global, dtype;
    };
    constexpr Pair pairs[] = {
        {"torch\nFloatStorage", "float32"},           {"torch\nDoubleStorage", "float64"},
        {"torch\nHalfStorage", "float16"},            {"torch\nBFloat16Storage", "bfloat16"},
        {"torch\nLongStorage", "int64"},              {"torch\nIntStorage", "int32"},
        {"torch\nShortStorage", "int16"},             {"torch\nCharStorage", "int8"},
        {"torch\nByteStorage", "uint8"},              {"torch\nBoolStorage", "bool"},
        {"torch\nComplexFloatStorage", "complex64"},  {"torch\nComplexDoubleStorage", "complex128"},
    };
    for (const Pair &pair : pairs) {
        if (pair.global == global) {
            return pair.dtype;
        }
    }
    give_up("it holds a storage of a rare kind");
}

// Writes down what the pickle describes.
class Writer {
  public:
    Writer(const Archive &archive, const Pickle &pickle, std::size_t pickle_bytes)
        : archive_(archive),
          pickle_(pickle),
          values_(pickle.values),
          most_bytes_(structure_bytes + structure_bytes_per_byte * pickle_bytes) {}

    Layout write() {
        write_value(pickle_.root, 0);
        return std::move(layout_);
    }

  private:
    void write_value(Index at, int nesting) {
        const Value &value = values_[at];
        if (nesting > max_nesting) {
            give_up("its containers are nested very deeply");
        }
        switch (value.kind) {
            case Kind::integer: leaf("\"i\"", value.number); break;
            case Kind::real: leaf("\"f\"", value.number); break;
            case Kind::boolean: leaf("\"b\"", value.number); break;
            case Kind::tensor: write_tensor(value); break;
            case Kind::tuple: write_items("[\"u\",[", value, nesting); break;
            case Kind::list: write_items("[\"l\",[", value, nesting); break;
            case Kind::dict: write_pairs("[\"d\",[", value, nesting); break;
            case Kind::ordered_dict: write_pairs("[\"o\",[", value, nesting); break;
            default: give_up("it holds more than tensors, numbers and plain containers");
        }
    }
    void count_one() {
        if (++written_ > max_leaves) {
            give_up("it holds very many tensors");
        }
    }
    // What is in the pickle once may be in the structure many times.
    void put(std::string_view text) {
        if (text.size() > most_bytes_ - layout_.structure.size()) {
            give_up("it repeats itself very often");
        }
        layout_.structure += text;
    }
    void leaf(std::string_view text, std::int64_t column) {
        count_one();
        put(text);
        layout_.columns.push_back(column);
    }
    void write_items(std::string_view opening, const Value &value, int nesting) {
        count_one();
        put(opening);
        const std::vector<Index> &items = pickle_.items_of(value);
        for (std::size_t i = 0; i < items.size(); ++i) {
            put(i == 0 ? "" : ",");
            write_value(items[i], nesting + 1);
        }
        put("]]");
    }
    void write_pairs(std::string_view opening, const Value &value, int nesting) {
        count_one();
        put(opening);
        const std::vector<Index> &items = pickle_.items_of(value);
        for (std::size_t i = 0; i < items.size(); i += 2) {
            put(i == 0 ? "[" : ",[");
            put(quoted(values_[items[i]].text));
            put(",");
            write_value(items[i + 1], nesting + 1);
            put("]");
        }
        put("]]");
    }

    std::int64_t integer(Index at) const {
        if (values_[at].kind != Kind::integer || values_[at].number < 0) {
            give_up("a tensor is described by something other than sizes");
        }
        return values_[at].number;
    }
    std::vector<std::int64_t> integers(Index at) const {
        const std::vector<Index> &items = pickle_.items_of(values_[at]);
        if (values_[at].kind != Kind::tuple || items.size() > 64) {
            give_up("a tensor is described by something other than sizes");
        }
        std::vector<std::int64_t> all;
        for (const Index item : items) {
            all.push_back(integer(item));
        }
        return all;
    }

    // (storage, offset, shape, strides, requires_grad, hooks), and the dtype for newer types.
    void write_tensor(const Value &value) {
        const std::vector<Index> &about = pickle_.items_of(value);
        const Value &storage = values_[about[0]];
        const std::vector<Index> &stored = pickle_.items_of(storage);
        const Value &hooks = values_[about[5]];
        if (storage.kind != Kind::storage || stored.size() != 5 || values_[stored[0]].text != "storage" ||
            values_[stored[1]].kind != Kind::global || values_[stored[2]].kind != Kind::text) {
            give_up("a tensor's storage is described in an unknown way");
        }
        if (values_[stored[3]].text != "cpu") {
            give_up("a tensor lies on a device");
        }
        if (values_[about[4]].kind != Kind::boolean || values_[about[4]].number != 0 ||
            hooks.kind != Kind::ordered_dict || !pickle_.items_of(hooks).empty()) {
            give_up("a tensor requires gradients");
        }
        const std::string_view storage_type = values_[stored[1]].text;
        const bool named = about.size() == 7;
        std::string_view dtype;
        if (!named) {
            dtype = dtype_of_storage(storage_type);
        } else if (storage_type == "torch.storage\nUntypedStorage" || storage_type == "torch\nUntypedStorage") {
            dtype = dtype_named(values_[about[6]]);
        } else {
            give_up("it holds a storage of a rare kind");
        }
        const std::uint64_t itemsize = itemsize_of(dtype);
        const std::vector<std::int64_t> shape = integers(about[2]);
        const std::uint64_t bytes = tensor_bytes(dtype, shape);
        if (bytes != 0 && !contiguous(shape, integers(about[3]))) {
            give_up("a tensor is not contiguous");
        }
        std::uint64_t record_bytes = 0;
        const std::uint64_t start = archive_.start_of("data/" + std::string(values_[stored[2]].text), record_bytes);
        const auto elements = static_cast<std::uint64_t>(integer(stored[4]));
        const auto offset = static_cast<std::uint64_t>(integer(about[1]));
        const std::uint64_t unit = named ? 1 : itemsize;
        if (record_bytes % unit != 0 || elements != record_bytes / unit || offset > record_bytes / itemsize ||
            bytes > record_bytes - offset * itemsize) {
            throw Damaged{"a tensor goes past the end of its storage"};
        }
        leaf(tensor_text(dtype, shape), static_cast<std::int64_t>(start + offset * itemsize));
    }

    static std::string_view dtype_named(const Value &global) {
        const std::string_view name = global.text;
        if (global.kind != Kind::global || name.substr(0, 6) != "torch\n" || itemsize_of(name.substr(6)) == 0) {
            give_up("it holds elements of a rare type");
        }
        return name.substr(6);
    }

    static bool contiguous(const std::vector<std::int64_t> &shape, const std::vector<std::int64_t> &strides) {
        if (shape.size() != strides.size()) {
            return false;
        }
        std::int64_t expected = 1;
        for (std::size_t i = shape.size(); i-- > 0;) {
            if (shape[i] != 1 && strides[i] != expected) {
                return false;
            }
            expected *= shape[i];
        }
        return true;
    }

    const Archive &archive_;
    const Pickle &pickle_;
    const std::vector<Value> &values_;
    const std::size_t most_bytes_;
    Layout layout_;
    std::size_t written_ = 0;
};

}  // namespace

Layout pt_layout(const Source &source) {
    const Archive archive(source);
    if (archive.has("constants.pkl")) {
        give_up("it is a TorchScript archive");
    }
    if (archive.has("byteorder")) {
        const std::vector<std::uint8_t> order = archive.content("byteorder", 16);
        if (std::string(order.begin(), order.end()) != "little") {
            give_up("it was written in another byte order");
        }
    }
    const std::vector<std::uint8_t> data = archive.content("data.pkl", max_pickle_bytes);
    const Pickle pickle = read_pickle(data.data(), data.size());
    return Writer(archive, pickle, data.size()).write();
}

}  // namespace unstarve
