// What reads of files take from Python, and tell it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <utility>

#include "reader.h"

using Out = std::pair<std::uintptr_t, std::uint64_t>;  // address, bytes

// Failures, direct bytes, O_DIRECT refused, io_uring used.
nanobind::tuple told(const unstarve::Report &report);
