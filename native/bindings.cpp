// unstarve._native: with the bind_*.cpp beside it the only place that knows both Python and the native code.
//
// The functions here guard memory safety; friendly checks and conversions are in the Python beside each
// call, so that the Python twin shares them. Arguments are never converted: a copy of `out` would be lost.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>

#include "bind.h"
#include "counters.h"
#include "gather.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Source = nb::ndarray<nb::ro, nb::device::cpu, nb::c_contig>;
using Index = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::device::cpu, nb::c_contig>;
using Out = nb::ndarray<nb::device::cpu, nb::c_contig>;

template <typename Array>
std::size_t row_bytes(const Array &array) {
    std::size_t bytes = array.itemsize();
    for (std::size_t axis = 1; axis < array.ndim(); ++axis) {
        bytes *= array.shape(axis);
    }
    return bytes;
}

void gather(const Source &source, const Index &index, const Out &out, unsigned threads) {
    if (source.ndim() == 0 || out.ndim() == 0) {
        throw nb::value_error("source and out need at least one dimension");
    }
    if (out.shape(0) != index.shape(0) || row_bytes(out) != row_bytes(source)) {
        throw nb::value_error("out does not have one row of source's size for each index");
    }
    const unstarve::Rows rows{static_cast<const std::byte *>(source.data()), source.shape(0),
                              row_bytes(source)};
    const nb::gil_scoped_release unlocked;
    unstarve::gather(rows, index.data(), index.shape(0), static_cast<std::byte *>(out.data()), threads);
}

void gather_at(const Source &memory, const Index &starts, const Out &out) {
    if (memory.ndim() != 1 || memory.itemsize() != 1 || out.ndim() == 0) {
        throw nb::value_error("memory must be bytes in one dimension, and out needs at least one");
    }
    const std::size_t bytes = row_bytes(out);
    if (out.shape(0) != starts.shape(0) || bytes == 0 || bytes > memory.shape(0)) {
        throw nb::value_error("out does not have one row, shorter than memory, for each start");
    }
    const unstarve::Rows rows{static_cast<const std::byte *>(memory.data()), memory.shape(0) - bytes + 1, bytes, 1};
    const nb::gil_scoped_release unlocked;
    unstarve::gather(rows, starts.data(), starts.shape(0), static_cast<std::byte *>(out.data()), 1);
}

}  // namespace

NB_MODULE(_native, module) {
    module.doc() = "Compiled parts of unstarve; each has a Python twin.";
    module.def("gather", &gather, "source"_a.noconvert(), "index"_a.noconvert(), "out"_a.noconvert(),
               "threads"_a = 0,
               "Copy rows of source at int64 indices into out; all C-contiguous and on the CPU.");
    module.def("gather_at", &gather_at, "memory"_a.noconvert(), "starts"_a.noconvert(), "out"_a.noconvert(),
               "Copy what begins at each of the starts in memory into its row of out, on the calling thread.");
    bind_columns(module);
    bind_draws(module);
    bind_file_table(module);
    bind_formats(module);
    bind_images(module);
    bind_reader(module);
    bind_batches(module);
    bind_collect(module);
    bind_wait(module);
}
