// Writing down a layout: element types, sizes without overflow, the structure's text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats.h"

namespace unstarve {

// Bytes of one element of a torch dtype, by its name; 0 for a name that is none.
std::uint64_t itemsize_of(std::string_view dtype);

// Bytes of a tensor; throws Damaged where they cannot be counted.
std::uint64_t tensor_bytes(std::string_view dtype, const std::vector<std::int64_t> &shape);

bool is_utf8(std::string_view text);

// As in JSON, with what is not ASCII as it is.
std::string quoted(std::string_view text);

std::string tensor_text(std::string_view dtype, const std::vector<std::int64_t> &shape);

Layout npy_layout(const Source &source);
Layout pt_layout(const Source &source);
Layout safetensors_layout(const Source &source);

}  // namespace unstarve
