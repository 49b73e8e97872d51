// Rows of several columns → batches, in one call with what a sampler gives: for small rows the way there,
// a numpy view of each batch and of the indices, takes longer than the copying.
#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bind.h"
#include "gather.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

// Below this many bytes the GIL is kept: to get it back from a busy thread takes longer than the copying.
constexpr std::size_t min_unlocked_bytes = std::size_t{256} << 10;

// False where one of them is something else than an int that fits.
bool read_indices(const nb::list &list, std::vector<std::int64_t> &indices) {
    indices.reserve(nb::len(list));
    for (const nb::handle item : list) {
        if (!PyLong_CheckExact(item.ptr())) {
            return false;
        }
        const std::int64_t index = PyLong_AsLongLong(item.ptr());
        if (index == -1 && PyErr_Occurred() != nullptr) {
            PyErr_Clear();
            return false;
        }
        indices.push_back(index);
    }
    return true;
}

// A contiguous tensor on the CPU, asked where it is each time: torch moves tensors to shared memory.
struct Memory {
    explicit Memory(nb::handle tensor)
        : data(reinterpret_cast<std::byte *>(nb::cast<std::uintptr_t>(tensor.attr("data_ptr")()))),
          bytes(nb::cast<std::size_t>(tensor.attr("nbytes"))) {}
    std::byte *data;
    std::size_t bytes;
};

bool gather_columns(const nb::tuple &columns, std::size_t row_count, const nb::list &index_list,
                    const nb::list &batches, unsigned threads) {
    std::vector<std::int64_t> indices;
    if (!read_indices(index_list, indices)) {
        return false;
    }
    if (nb::len(columns) != nb::len(batches)) {
        throw nb::value_error("there must be one batch for each column");
    }
    for (std::size_t at = 0; at < nb::len(columns); ++at) {
        const Memory column(columns[at]);
        const Memory batch(batches[at]);
        const unstarve::Rows rows{column.data, row_count, row_count == 0 ? 0 : column.bytes / row_count};
        if (rows.count * rows.row_bytes != column.bytes || indices.size() * rows.row_bytes != batch.bytes) {
            throw nb::value_error("a batch does not have one row of its column's size for each index");
        }
        if (batch.bytes < min_unlocked_bytes) {
            unstarve::gather(rows, indices.data(), indices.size(), batch.data, threads);
        } else {
            const nb::gil_scoped_release unlocked;
            unstarve::gather(rows, indices.data(), indices.size(), batch.data, threads);
        }
    }
    return true;
}

}  // namespace

void bind_columns(nb::module_ &module) {
    module.def("gather_columns", &gather_columns, "columns"_a, "row_count"_a, "indices"_a, "batches"_a,
               "threads"_a = 0,
               "Copy rows of each column into the batch beside it, all contiguous tensors on the CPU; False where "
               "an index is no int.");
}
