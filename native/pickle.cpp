#include "pickle.h"

#include <cstring>
#include <string_view>
#include <unordered_map>

#include "formats.h"
#include "layout.h"

namespace unstarve {
namespace {

[[noreturn]] void give_up(const char *reason) { throw Unsupported{reason}; }

class Machine {
  public:
    Machine(const std::uint8_t *data, std::size_t length) : at_(data), end_(data + length) {}

    Pickle run() {
        while (step()) {
        }
        if (stack_.size() != 1 || !marks_.empty()) {
            give_up("its pickle does not end as it should");
        }
        return {std::move(values_), stack_.back()};
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
            case ')': push(Kind::tuple); return true;
            case 0x85: tuple(size_after(1)); return true;
            case 0x86: tuple(size_after(2)); return true;
            case 0x87: tuple(size_after(3)); return true;
            case 't': tuple(mark()); return true;
            case ']': push(Kind::list); return true;
            case 'a': append(size_after(1)); return true;
            case 'e': append(mark()); return true;
            case '}': push(Kind::dict); return true;
            case 's': set_items(size_after(2)); return true;
            case 'u': set_items(mark()); return true;
            case 'q': memo_[byte()] = top(); return true;
            case 'r': memo_[little_endian(4)] = top(); return true;
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
    std::string string(std::uint64_t length) {
        if (length > static_cast<std::uint64_t>(end_ - at_)) {
            give_up("its pickle breaks off");
        }
        const std::string text(reinterpret_cast<const char *>(at_), static_cast<std::size_t>(length));
        at_ += length;
        if (!is_utf8(text)) {
            give_up("a string in its pickle is not UTF-8");
        }
        return text;
    }
    std::string line() {
        const void *const newline = std::memchr(at_, '\n', static_cast<std::size_t>(end_ - at_));
        if (newline == nullptr) {
            give_up("its pickle breaks off");
        }
        const std::string text = string(static_cast<std::uint64_t>(static_cast<const std::uint8_t *>(newline) - at_));
        ++at_;
        return text;
    }

    std::size_t make(Kind kind, std::int64_t number = 0) {
        values_.push_back({kind, number, {}, {}});
        return values_.size() - 1;
    }
    void push(Kind kind, std::int64_t number = 0) { stack_.push_back(make(kind, number)); }
    void push_text(Kind kind, std::string text) {
        push(kind);
        values_.back().text = std::move(text);
    }
    std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
    std::size_t top() const {
        if (stack_.size() <= floor()) {
            give_up("its pickle takes what is not there");
        }
        return stack_.back();
    }
    std::size_t pop() {
        const std::size_t value = top();
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
    std::vector<std::size_t> take_from(std::size_t from) {
        const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(from);
        std::vector<std::size_t> taken(first, stack_.end());
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
        const std::string module = line();
        push_text(Kind::global, module + " " + line());
    }
    void tuple(std::size_t from) {
        std::vector<std::size_t> items = take_from(from);
        push(Kind::tuple);
        values_.back().items = std::move(items);
    }
    void append(std::size_t from) {
        const std::vector<std::size_t> items = take_from(from);
        Value &list = values_[top()];
        if (list.kind != Kind::list) {
            give_up("its pickle appends to what is no list");
        }
        list.items.insert(list.items.end(), items.begin(), items.end());
    }
    void set_items(std::size_t from) {
        const std::vector<std::size_t> items = take_from(from);
        const std::size_t dict = top();
        if ((values_[dict].kind != Kind::dict && values_[dict].kind != Kind::ordered_dict) || items.size() % 2 != 0) {
            give_up("its pickle sets items of what is no dict");
        }
        auto &keys = keys_[dict];
        for (std::size_t i = 0; i < items.size(); i += 2) {
            const Value &key = values_[items[i]];
            if (key.kind != Kind::text) {
                give_up("it holds a dict whose keys are not strings");
            }
            std::vector<std::size_t> &known = values_[dict].items;
            const auto [place, is_new] = keys.emplace(key.text, known.size() + 1);
            if (is_new) {
                known.push_back(items[i]);
                known.push_back(items[i + 1]);
            } else {
                known[place->second] = items[i + 1];
            }
        }
    }
    void recall(std::uint64_t key) {
        const auto found = memo_.find(key);
        if (found == memo_.end()) {
            give_up("its pickle takes what is not there");
        }
        stack_.push_back(found->second);
    }
    void persistent() {
        const std::size_t id = pop();
        if (values_[id].kind != Kind::tuple) {
            give_up("its pickle refers to something outside that is no storage");
        }
        std::vector<std::size_t> items = values_[id].items;
        push(Kind::storage);
        values_.back().items = std::move(items);
    }
    void reduce() {
        const std::size_t arguments = pop();
        const std::size_t function = pop();
        if (values_[function].kind != Kind::global || values_[arguments].kind != Kind::tuple) {
            give_up("its pickle calls what is no function");
        }
        const std::string &name = values_[function].text;
        std::vector<std::size_t> items = values_[arguments].items;
        if (name == "collections OrderedDict" && items.empty()) {
            push(Kind::ordered_dict);
        } else if (name == "torch._utils _rebuild_tensor_v2" && items.size() == 6) {
            push_text(Kind::tensor, "v2");
            values_.back().items = std::move(items);
        } else if (name == "torch._utils _rebuild_tensor_v3" && items.size() == 7) {
            push_text(Kind::tensor, "v3");
            values_.back().items = std::move(items);
        } else {
            give_up("it holds more than tensors, numbers and plain containers");
        }
    }

    const std::uint8_t *at_;
    const std::uint8_t *end_;
    std::vector<Value> values_;
    std::vector<std::size_t> stack_;
    std::vector<std::size_t> marks_;
    std::unordered_map<std::uint64_t, std::size_t> memo_;
    std::unordered_map<std::size_t, std::unordered_map<std::string, std::size_t>> keys_;
};

}  // namespace

Pickle read_pickle(const std::uint8_t *data, std::size_t length) { return Machine(data, length).run(); }

}  // namespace unstarve
