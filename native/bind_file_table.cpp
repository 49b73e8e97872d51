#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "bind.h"
#include "bind_read.h"
#include "formats.h"
#include "reader.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Index = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::device::cpu, nb::c_contig>;
using Formats = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::device::cpu, nb::c_contig>;
using Rows = nb::ndarray<std::int64_t, nb::ndim<2>, nb::device::cpu, nb::c_contig>;

// Files of one structure. Each has a row: its size, its modification time, and the columns of native/formats.h. Other
// processes may share the memory of the rows, and threads the table.
class FileTable {
  public:
    FileTable(nb::bytes names, Index starts, Formats formats, Rows rows, nb::bytes structure, const Index &tensors,
              const Index &lengths)
        : names_(std::move(names)),
          starts_(std::move(starts)),
          formats_(std::move(formats)),
          rows_(std::move(rows)),
          structure_(std::move(structure)),
          width_(rows_.shape(1)) {
        const std::size_t count = starts_.shape(0);
        if (formats_.shape(0) != count || rows_.shape(0) != count || tensors.shape(0) != lengths.shape(0) ||
            width_ < 2) {
            throw nb::value_error("there must be a format and a row for each file, and a length for each tensor");
        }
        for (std::size_t i = 0; i < count; ++i) {
            if (starts_.data()[i] < 0 || starts_.data()[i] >= static_cast<std::int64_t>(names_.size())) {
                throw nb::value_error("a file's name starts outside the table of names");
            }
        }
        for (std::size_t i = 0; i < tensors.shape(0); ++i) {
            if (tensors.data()[i] < 0 || tensors.data()[i] >= static_cast<std::int64_t>(width_) - 2) {
                throw nb::value_error("a tensor names a column outside its row");
            }
            if (lengths.data()[i] < 0) {
                throw nb::value_error("a tensor has a negative length");
            }
            tensors_.push_back(static_cast<std::size_t>(tensors.data()[i]));
            lengths_.push_back(static_cast<std::uint64_t>(lengths.data()[i]));
        }
    }

    // Reads tensor t of file i into row i of out t. With `looks`, files not looked into are looked into, through the
    // page cache, and remembered. `taken`, if any, gets the files' rows.
    nb::tuple read(const Index &files, const std::vector<Out> &outs, const std::optional<Rows> &taken, bool looks,
                   bool direct, unsigned depth, unsigned threads) {
        const std::size_t count = files.shape(0);
        check(files, outs);
        std::vector<std::int64_t> rows(count * width_);
        std::vector<std::uint8_t> formats(count);
        std::vector<unstarve::Read> reads;
        reads.reserve(count * tensors_.size());
        for (std::size_t i = 0; i < count; ++i) {
            const auto file = static_cast<std::size_t>(files.data()[i]);
            std::int64_t *const row = &rows[i * width_];
            take(file, row);
            formats[i] = formats_.data()[file];
            for (std::size_t t = 0; t < tensors_.size(); ++t) {
                reads.push_back({names_.c_str() + starts_.data()[file], -1,
                                 static_cast<std::uint64_t>(row[2 + tensors_[t]]), lengths_[t],
                                 reinterpret_cast<std::byte *>(outs[t].first) + i * lengths_[t], row[0], row[1]});
            }
        }
        std::optional<unstarve::LayoutFinder> finder;
        if (looks) {
            finder.emplace(std::string_view(structure_.c_str(), structure_.size()), formats.data(), tensors_,
                           rows.data(), width_);
        }
        unstarve::Report report;
        {
            const nb::gil_scoped_release unlocked;
            report =
                unstarve::read_all(std::move(reads), {direct, depth, threads, true}, finder ? &*finder : nullptr);
        }
        if (finder && finder->found_some()) {
            for (std::size_t i = 0; i < count; ++i) {
                learn(static_cast<std::size_t>(files.data()[i]), &rows[i * width_]);
            }
        }
        if (taken) {
            if (taken->shape(0) != count || taken->shape(1) != width_) {
                throw nb::value_error("there must be room for the row of each file");
            }
            std::copy(rows.begin(), rows.end(), taken->data());
        }
        return told(report);
    }

  private:
    void check(const Index &files, const std::vector<Out> &outs) const {
        for (std::size_t i = 0; i < files.shape(0); ++i) {
            if (files.data()[i] < 0 || files.data()[i] >= static_cast<std::int64_t>(starts_.shape(0))) {
                throw nb::value_error("a file is not in the table");
            }
        }
        if (outs.size() != tensors_.size()) {
            throw nb::value_error("there must be a buffer for each tensor");
        }
        for (std::size_t t = 0; t < outs.size(); ++t) {
            if (lengths_[t] != 0 && outs[t].second / lengths_[t] < files.shape(0)) {
                throw nb::value_error("a buffer is too small for its tensors");
            }
        }
    }

    // A row with a time has the columns of that time, and one with a size is complete: written in this order, and
    // read in the opposite one.
    void take(std::size_t file, std::int64_t *to) const {
        const std::int64_t *const row = rows_.data() + file * width_;
        to[0] = __atomic_load_n(&row[0], __ATOMIC_ACQUIRE);
        to[1] = __atomic_load_n(&row[1], __ATOMIC_ACQUIRE);
        std::copy(row + 2, row + width_, to + 2);
    }
    void learn(std::size_t file, const std::int64_t *from) {
        std::int64_t *const row = rows_.data() + file * width_;
        if (from[0] >= 0) {
            std::copy(from + 2, from + width_, row + 2);
            __atomic_store_n(&row[1], from[1], __ATOMIC_RELEASE);
            __atomic_store_n(&row[0], from[0], __ATOMIC_RELEASE);
        }
    }

    nb::bytes names_;
    Index starts_;
    Formats formats_;
    Rows rows_;
    nb::bytes structure_;
    std::size_t width_;
    std::vector<std::size_t> tensors_;    // their columns
    std::vector<std::uint64_t> lengths_;  // in bytes
};

}  // namespace

void bind_file_table(nb::module_ &module) {
    nb::class_<FileTable>(module, "FileTable", "Files of one structure, which are read by their numbers.")
        .def(nb::init<nb::bytes, Index, Formats, Rows, nb::bytes, const Index &, const Index &>(), "names"_a,
             "starts"_a.noconvert(), "formats"_a.noconvert(), "rows"_a.noconvert(), "structure"_a,
             "tensors"_a.noconvert(), "lengths"_a.noconvert())
        .def("read", &FileTable::read, "files"_a.noconvert(), "outs"_a, "taken"_a.noconvert().none(), "looks"_a,
             "direct"_a, "depth"_a, "threads"_a,
             "Read each file's tensors into its rows of the buffers; what `read_files` returns.");
}
