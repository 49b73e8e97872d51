// A pickle as torch.save writes it, read without executing anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace unstarve {

enum class Kind : std::uint8_t {
    none,
    boolean,
    integer,
    real,
    text,
    tuple,
    list,
    dict,
    ordered_dict,
    global,   // text: "module\nname"; never looked up
    storage,  // items: what torch.save said of it
    tensor,   // items: what it would be rebuilt from, six values or seven
};

using Index = std::uint32_t;

// A pickle can use one tuple or one string as often as it likes, for two bytes each time: nothing is copied.
struct Value {
    Kind kind = Kind::none;
    Index items = 0;          // which of Pickle::items; many values may share one
    std::int64_t number = 0;  // an integer, a boolean, or the bits of a real
    std::string_view text;    // in the pickle's own bytes
};

struct Pickle {
    std::vector<Value> values;
    std::vector<std::vector<Index>> items;  // positions of other values; keys and values in turn in a dict
    Index root;

    const std::vector<Index> &items_of(const Value &value) const { return items[value.items]; }
};

// Throws Unsupported for everything but plain containers, numbers, strings and tensors. The result refers to `data`.
Pickle read_pickle(const std::uint8_t *data, std::size_t length);

}  // namespace unstarve
