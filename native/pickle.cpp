#include "pickle.h"

#include <array>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "formats.h"
#include "layout.h"

namespace unstarve {
namespace {

// A tensor takes some fifty: this is enough for as many as a layout may have. Each adds a few dozen bytes at most.
constexpr std::size_t max_opcodes = std::size_t{1} << 19;

constexpr Index no_items = 0;

[[noreturn]] void give_up(const char *reason) { throw Unsupported{reason}; }

class Machine {
  public:
    Machine(const std::uint8_t *data, std::size_t length) : at_(data), end_(data + length), items_(1) {}

    Pickle run() {
        std::size_t opcodes = 0;
        do {
            if (opcodes++ == max_opcodes) {
                give_up("its pickle is very long");
            }
        } while (step());
        if (stack_.size() != 1 || !marks_.empty()) {
            give_up("its pickle does not end as it should");
        }
        return {std::move(values_), std::move(items_), stack_.back()};
    }

  private:
    // Executes one opcode. False: that was the last.
    bool step() {
        switch (byte()) {
            case 0x80:  // PROTO
                if (byte() > 5) {
                    give_up("its pickle is of an unknown protocol");
                }
                return true;
            case '.': return false;
            case '(': marks_.push_back(stack_.size()); return true;
            case 'N': push(Kind::none); return true;
            case 0x88: push(Kind::boolean, 1); return true;
            case 0x89: push(Kind::boolean, 0); return true;
            case 'K': push(Kind::integer, byte()); return true;
            case 'M': push(Kind::integer, static_cast<std::int64_t>(little_endian(2))); return true;
            case 'J': push(Kind::integer, static_cast<std::int32_t>(little_endian(4))); return true;
            case 0x8a: long1(); return true;
            case 'G': real(); return true;
            case 'X': push_text(Kind::text, string(little_endian(4))); return true;
            case 'c': global(); return true;
            case ')': push(Kind::tuple); return true;  // of no_items
            case 0x85: tuple(size_after(1)); return true;
            case 0x86: tuple(size_after(2)); return true;
            case 0x87: tuple(size_after(3)); return true;
            case 't': tuple(mark()); return true;
            case ']': push_container(Kind::list, {}); return true;
            case 'a': append(size_after(1)); return true;
            case 'e': append(mark()); return true;
            case '}': push_container(Kind::dict, {}); return true;
            case 's': set_items(size_after(2)); return true;
            case 'u': set_items(mark()); return true;
            case 'q': remember(byte()); return true;
            case 'r': remember(little_endian(4)); return true;
            case 'h': recall(byte()); return true;
            case 'j': recall(little_endian(4)); return true;
            case 'Q': persistent(); return true;
            case 'R': reduce(); return true;
            default: give_up("its pickle does something that torch.save does for no tensor");
        }
    }

    std::uint8_t byte() {
        if (at_ == end_) {
            give_up("its pickle breaks off");
        }
        return *at_++;
    }
    std::uint64_t little_endian(unsigned bytes) {
        std::uint64_t value = 0;
        for (unsigned i = 0; i < bytes; ++i) {
            value |= std::uint64_t{byte()} << (8 * i);
        }
        return value;
    }
    std::string_view string(std::uint64_t length) {
        if (length > static_cast<std::uint64_t>(end_ - at_)) {
            give_up("its pickle breaks off");
        }
        const std::string_view text(reinterpret_cast<const char *>(at_), static_cast<std::size_t>(length));
        at_ += length;
        if (!is_utf8(text)) {
            give_up("a string in its pickle is not UTF-8");
        }
        return text;
    }
    std::string_view line() {
        const void *const newline = std::memchr(at_, '\n', static_cast<std::size_t>(end_ - at_));
        if (newline == nullptr) {
            give_up("its pickle breaks off");
        }
        const std::string_view text =
            string(static_cast<std::uint64_t>(static_cast<const std::uint8_t *>(newline) - at_));
        ++at_;
        return text;
    }

    void push(Kind kind, std::int64_t number = 0, Index items = no_items, std::string_view text = {}) {
        stack_.push_back(static_cast<Index>(values_.size()));
        values_.push_back({kind, items, number, text});
    }
    void push_text(Kind kind, std::string_view text) { push(kind, 0, no_items, text); }
    void push_container(Kind kind, std::vector<Index> items) {
        push(kind, 0, static_cast<Index>(items_.size()));
        items_.push_back(std::move(items));
    }
    std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
    Index top() const {
        if (stack_.size() <= floor()) {
            give_up("its pickle takes what is not there");
        }
        return stack_.back();
    }
    Index pop() {
        const Index value = top();
        stack_.pop_back();
        return value;
    }
    // Position in the stack of the last `count` values.
    std::size_t size_after(std::size_t count) const {
        if (stack_.size() < floor() + count) {
            give_up("its pickle takes what is not there");
        }
        return stack_.size() - count;
    }
    std::size_t mark() {
        if (marks_.empty()) {
            give_up("its pickle takes what is not there");
        }
        const std::size_t from = marks_.back();
        marks_.pop_back();
        return from;
    }
    std::vector<Index> take_from(std::size_t from) {
        const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(from);
        std::vector<Index> taken(first, stack_.end());
        stack_.erase(first, stack_.end());
        return taken;
    }

    void long1() {
        const unsigned length = byte();
        if (length > 8) {
            give_up("it holds an integer of more than 64 bits");
        }
        std::uint64_t value = little_endian(length);
        if (length != 0 && length < 8 && (value >> (8 * length - 1)) != 0) {
            value |= ~std::uint64_t{0} << (8 * length);  // the sign
        }
        push(Kind::integer, static_cast<std::int64_t>(value));
    }
    void real() {
        std::uint64_t bits = 0;
        for (int i = 0; i < 8; ++i) {
            bits = bits << 8 | byte();
        }
        push(Kind::real, static_cast<std::int64_t>(bits));
    }
    void global() {
        const std::string_view module = line();
        const std::string_view name = line();
        push_text(Kind::global, {module.data(), module.size() + 1 + name.size()});
    }
    void tuple(std::size_t from) { push_container(Kind::tuple, take_from(from)); }
    void append(std::size_t from) {
        const std::vector<Index> items = take_from(from);
        const Value &list = values_[top()];
        if (list.kind != Kind::list) {
            give_up("its pickle appends to what is no list");
        }
        std::vector<Index> &known = items_[list.items];
        known.insert(known.end(), items.begin(), items.end());
    }
    void set_items(std::size_t from) {
        const std::vector<Index> items = take_from(from);
        const Value &dict = values_[top()];
        if ((dict.kind != Kind::dict && dict.kind != Kind::ordered_dict) || items.size() % 2 != 0) {
            give_up("its pickle sets items of what is no dict");
        }
        std::vector<Index> &known = items_[dict.items];
        for (std::size_t i = 0; i < items.size(); i += 2) {
            const std::uint64_t key = std::uint64_t{dict.items} << 32 | key_of(values_[items[i]]);
            const auto [place, is_new] = places_.emplace(key, known.size() + 1);
            if (is_new) {
                known.push_back(items[i]);
                known.push_back(items[i + 1]);
            } else {
                known[place->second] = items[i + 1];
            }
        }
    }
    // A number for the text, the same for equal texts. It is kept, so that a long text is hashed once.
    Index key_of(Value &key) {
        if (key.kind != Kind::text) {
            give_up("it holds a dict whose keys are not strings");
        }
        if (key.number == 0) {
            key.number = static_cast<std::int64_t>(keys_.emplace(key.text, keys_.size() + 1).first->second);
        }
        return static_cast<Index>(key.number);
    }
    Index &kept(std::uint64_t key) { return key < few_.size() ? few_[key] : memo_[key]; }
    void remember(std::uint64_t key) { kept(key) = top() + 1; }
    void recall(std::uint64_t key) {
        if (kept(key) == 0) {
            give_up("its pickle takes what is not there");
        }
        stack_.push_back(kept(key) - 1);
    }
    void persistent() {
        const Value id = values_[pop()];
        if (id.kind != Kind::tuple) {
            give_up("its pickle refers to something outside that is no storage");
        }
        push(Kind::storage, 0, id.items);
    }
    void reduce() {
        const Value arguments = values_[pop()];
        const Value function = values_[pop()];
        if (function.kind != Kind::global || arguments.kind != Kind::tuple) {
            give_up("its pickle calls what is no function");
        }
        const std::size_t count = items_[arguments.items].size();
        if (function.text == "collections\nOrderedDict" && count == 0) {
            push_container(Kind::ordered_dict, {});
        } else if ((function.text == "torch._utils\n_rebuild_tensor_v2" && count == 6) ||
                   (function.text == "torch._utils\n_rebuild_tensor_v3" && count == 7)) {
            push(Kind::tensor, 0, arguments.items);
        } else {
            give_up("it holds more than tensors, numbers and plain containers");
        }
    }

    const std::uint8_t *at_;
    const std::uint8_t *end_;
    std::vector<Value> values_;
    std::vector<std::vector<Index>> items_;
    std::vector<Index> stack_;
    std::vector<std::size_t> marks_;
    std::array<Index, 64> few_{};  // what is kept under small numbers, plus 1; 0: nothing
    std::unordered_map<std::uint64_t, Index> memo_;  // under others
    std::unordered_map<std::string_view, std::size_t> keys_;
    std::unordered_map<std::uint64_t, std::size_t> places_;  // of the value that a dict (above) has for a key (below)
};

}  // namespace

Pickle read_pickle(const std::uint8_t *data, std::size_t length) { return Machine(data, length).run(); }

}  // namespace unstarve
