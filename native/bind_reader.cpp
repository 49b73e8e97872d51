#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <sys/stat.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "bind.h"
#include "bind_read.h"
#include "reader.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

// One row per read; the columns are named in unstarve/fixes/reading.py.
using Plan = nb::ndarray<const std::int64_t, nb::shape<-1, 8>, nb::device::cpu, nb::c_contig>;

unstarve::Read read_of(const std::int64_t *row, const nb::bytes &names, const std::vector<Out> &outs) {
    const std::int64_t name = row[0];
    if (name >= static_cast<std::int64_t>(names.size())) {
        throw nb::value_error("a read names a path outside the table of paths");
    }
    if (row[2] < 0 || row[3] < 0 || row[5] < 0 || row[2] > INT64_MAX - row[3]) {
        throw nb::value_error("a read has a negative offset or length, or one past any file");
    }
    if (row[4] < 0 || row[4] >= static_cast<std::int64_t>(outs.size())) {
        throw nb::value_error("a read names a buffer that does not exist");
    }
    const Out &out = outs[static_cast<std::size_t>(row[4])];
    const auto length = static_cast<std::uint64_t>(row[3]);
    const auto to = static_cast<std::uint64_t>(row[5]);
    if (length > out.second || to > out.second - length) {
        throw nb::value_error("a read goes past the end of its buffer");
    }
    return {name < 0 ? nullptr : names.c_str() + name,
            static_cast<int>(row[1]),
            static_cast<std::uint64_t>(row[2]),
            length,
            reinterpret_cast<std::byte *>(out.first) + to,
            row[6],
            row[7]};
}

nb::tuple read_files(const Plan &plan, const nb::bytes &names, const std::vector<Out> &outs, bool direct,
                     unsigned depth, unsigned threads, bool uring) {
    std::vector<unstarve::Read> reads;
    reads.reserve(plan.shape(0));
    for (std::size_t i = 0; i < plan.shape(0); ++i) {
        reads.push_back(read_of(plan.data() + i * 8, names, outs));
    }
    unstarve::Report report;
    {
        const nb::gil_scoped_release unlocked;
        report = unstarve::read_all(std::move(reads), {direct, depth, threads, uring});
    }
    return told(report);
}

using Starts = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::device::cpu, nb::c_contig>;
using Sizes = nb::ndarray<std::int64_t, nb::ndim<1>, nb::device::cpu, nb::c_contig>;

void file_sizes(const nb::bytes &names, const Starts &starts, const Sizes &sizes) {
    if (sizes.shape(0) != starts.shape(0)) {
        throw nb::value_error("there must be one size for each name");
    }
    for (std::size_t at = 0; at < starts.shape(0); ++at) {
        if (starts.data()[at] < 0 || starts.data()[at] >= static_cast<std::int64_t>(names.size())) {
            throw nb::value_error("a name starts outside the table of names");
        }
    }
    const nb::gil_scoped_release unlocked;
    for (std::size_t at = 0; at < starts.shape(0); ++at) {
        struct stat status {};
        const bool is_file = ::stat(names.c_str() + starts.data()[at], &status) == 0 && S_ISREG(status.st_mode);
        sizes.data()[at] = is_file ? std::int64_t{status.st_size} : -1;
    }
}

}  // namespace

nb::tuple told(const unstarve::Report &report) {
    nb::list failures;
    for (const unstarve::Failure &failure : report.failures) {
        failures.append(nb::make_tuple(failure.read, static_cast<int>(failure.trouble), failure.error, failure.got));
    }
    return nb::make_tuple(failures, report.direct_bytes, report.direct_refused, report.used_uring);
}

void bind_reader(nb::module_ &module) {
    module.def("read_files", &read_files, "plan"_a.noconvert(), "names"_a, "outs"_a, "direct"_a, "depth"_a,
               "threads"_a, "uring"_a,
               "Read each row of the plan into its buffer; failures, direct bytes, O_DIRECT refused, io_uring used.");
    module.def("file_sizes", &file_sizes, "names"_a, "starts"_a.noconvert(), "sizes"_a.noconvert(),
               "Fill in the size of each named file in bytes; -1 for what is not a regular file, or cannot be reached.");
}
