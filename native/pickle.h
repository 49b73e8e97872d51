// A pickle as torch.save writes it, read without executing anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
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
    global,   // text: "module name"; never looked up
    storage,  // items: what torch.save said of it
    tensor,   // items: what it would be rebuilt from; text: "v2" or "v3"
};

struct Value {
    Kind kind = Kind::none;
    std::int64_t number = 0;  // an integer, a boolean, or the bits of a real
    std::string text;
    std::vector<std::size_t> items;  // positions of other values; keys and values in turn in a dict
};

struct Pickle {
    std::vector<Value> values;
    std::size_t root;
};

// Throws Unsupported for everything but plain containers, numbers, strings and tensors.
Pickle read_pickle(const std::uint8_t *data, std::size_t length);

}  // namespace unstarve
