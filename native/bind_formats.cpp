#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <vector>

#include "bind.h"
#include "formats.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Starts = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::device::cpu, nb::c_contig>;
using Formats = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::device::cpu, nb::c_contig>;

nb::list find_layouts(const nb::bytes &names, const Starts &starts, const Formats &formats, bool direct,
                      unsigned threads) {
    if (starts.shape(0) != formats.shape(0)) {
        throw nb::value_error("there must be one format for each path");
    }
    std::vector<unstarve::Question> questions;
    questions.reserve(starts.shape(0));
    for (std::size_t i = 0; i < starts.shape(0); ++i) {
        const std::int64_t start = starts.data()[i];
        if (start < 0 || start >= static_cast<std::int64_t>(names.size())) {
            throw nb::value_error("a question names a path outside the table of paths");
        }
        questions.push_back({names.c_str() + start, static_cast<unstarve::Format>(formats.data()[i])});
    }
    std::vector<unstarve::Answer> answers;
    {
        const nb::gil_scoped_release unlocked;
        answers = unstarve::find_layouts(questions, direct, threads);
    }
    nb::list list;
    for (const unstarve::Answer &answer : answers) {
        const std::string &text =
            answer.found == unstarve::Found::layout ? answer.layout.structure : answer.reason;
        list.append(nb::make_tuple(static_cast<int>(answer.found), answer.error, text, answer.layout.columns,
                                   answer.size_bytes, answer.mtime_ns));
    }
    return list;
}

}  // namespace

void bind_formats(nb::module_ &module) {
    module.def("find_layouts", &find_layouts, "names"_a, "starts"_a.noconvert(), "formats"_a.noconvert(), "direct"_a,
               "threads"_a,
               "For each file: what was found, errno, structure or reason, columns, size in bytes, mtime in ns.");
}
