// unstarve._native.Batches: an iterator whose batches are gathered from tensors, without Python in between.
//
// What needs Python is handed in: how a tensor is made, how unusual indices are understood, and what torch
// itself would do with those that cannot be.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "batches.h"
#include "bind.h"
#include "bind_recycled.h"
#include "gather.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Index = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::device::cpu, nb::c_contig>;

// Giving the GIL away and getting it back costs more than copying this.
constexpr std::size_t min_unlocked_bytes = std::size_t{64} << 10;

// The next item, or an empty handle at the end.
nb::object next_of(const nb::object &iterator) {
    PyObject *const item = PyIter_Next(iterator.ptr());
    if (item == nullptr && PyErr_Occurred() != nullptr) {
        throw nb::python_error();
    }
    return nb::steal(item);
}

// The indices in a list of plain ints; nothing where it is something else, or one does not fit.
std::optional<unstarve::Cut> indices_in(const nb::object &item) {
    if (!PyList_CheckExact(item.ptr()) || PyList_GET_SIZE(item.ptr()) == 0) {
        return std::nullopt;
    }
    std::vector<std::int64_t> indices(static_cast<std::size_t>(PyList_GET_SIZE(item.ptr())));
    for (std::size_t i = 0; i < indices.size(); ++i) {
        PyObject *const number = PyList_GET_ITEM(item.ptr(), static_cast<Py_ssize_t>(i));
        int overflow = 0;
        if (!PyLong_CheckExact(number)) {
            return std::nullopt;
        }
        indices[i] = PyLong_AsLongLongAndOverflow(number, &overflow);
        if (overflow != 0) {
            return std::nullopt;
        }
    }
    return unstarve::Cut(std::move(indices));
}

nb::list list_of(const unstarve::Cut &cut) {
    nb::list indices;
    for (std::size_t i = 0; i < cut.count; ++i) {
        indices.append(cut.index[i]);
    }
    return indices;
}

// One tensor of the dataset. Where its memory lies is asked for each batch: it moves when somebody shares it.
struct Leaf {
    nb::object tensor;
    std::size_t count;
    std::size_t row_bytes;
    Recycled batches;
};

// The dataset's tensors and what Python does for us.
struct Parts {
    std::vector<Leaf> leaves;
    nb::object build;     // None: the only tensor is the batch. `list`: their list is. Else a callable on it.
    nb::object as_index;  // unusual indices → an int64 array, or None
    nb::object fetch;     // indices as they came → what torch would make of them, an exception perhaps
    nb::object annotate;  // → a context manager around a batch while a profiler runs
    nb::object profiler;  // the dictionary that says whether one does
    nb::object progress;  // whose `given` counts the batches, and whose `ended` says that there are no more
};

class Batches {
  public:
    Batches(nb::object source, bool whole, std::size_t batch_size, bool drop_last, nb::list leaves,
            std::optional<Index> table, nb::object empty_like, nb::object storage_uses, nb::object build,
            nb::object as_index, nb::object fetch, nb::object annotate, nb::dict profiler, unsigned threads)
        : source_(std::move(source)),
          whole_(whole),
          cutter_(batch_size, drop_last),
          table_(std::move(table)),
          parts_{{},
                 std::move(build),
                 std::move(as_index),
                 std::move(fetch),
                 std::move(annotate),
                 std::move(profiler),
                 {}},
          threads_(threads),
          enabled_(nb::steal<nb::str>(PyUnicode_InternFromString("_is_profiler_enabled"))) {
        if (batch_size == 0 || nb::len(leaves) == 0) {
            throw nb::value_error("batch_size and the number of leaves must be at least 1");
        }
        for (const nb::handle leaf : leaves) {
            const nb::object tensor = leaf[0];
            const nb::tuple shape = nb::cast<nb::tuple>(tensor.attr("shape"));
            const auto count = nb::cast<std::size_t>(shape[0]);
            auto row_bytes = nb::cast<std::size_t>(tensor.attr("itemsize"));
            for (std::size_t axis = 1; axis < shape.size(); ++axis) {
                row_bytes *= nb::cast<std::size_t>(shape[axis]);
            }
            parts_.leaves.push_back(
                {tensor, count, row_bytes, Recycled(row_bytes, leaf[1], empty_like, storage_uses)});
        }
    }

    // The next batch, or an empty handle at the end.
    nb::object next(nb::handle self) {
        if (!source_.is_valid()) {
            return {};  // cleared by the garbage collector, which calls others before it is through
        }
        nb::object batch;
        try {
            batch = annotated(self);
        } catch (nb::python_error &error) {
            if (error.matches(PyExc_StopIteration)) {
                note_end();
            } else if (error.matches(PyExc_Exception)) {
                note_given();  // its indices are used up
            }
            throw;
        } catch (const std::exception &) {
            note_given();
            throw;
        }
        batch.is_valid() ? note_given() : note_end();
        return batch;
    }

    std::size_t taken() const { return taken_; }

    nb::object progress() const { return parts_.progress; }

    void count_into(nb::object progress) {
        given_ = nb::cast<std::size_t>(progress.attr("given"));
        parts_.progress = std::move(progress);
    }

    int traverse(visitproc visit, void *arg) {
        Py_VISIT(source_.ptr());
        for (const Leaf &leaf : parts_.leaves) {
            Py_VISIT(leaf.tensor.ptr());
            if (const int stopped = leaf.batches.traverse(visit, arg); stopped != 0) {
                return stopped;
            }
        }
        Py_VISIT(parts_.build.ptr());
        Py_VISIT(parts_.as_index.ptr());
        Py_VISIT(parts_.fetch.ptr());
        Py_VISIT(parts_.annotate.ptr());
        Py_VISIT(parts_.profiler.ptr());
        Py_VISIT(parts_.progress.ptr());
        return 0;
    }

    void clear() {
        source_.reset();
        parts_ = Parts{};
    }

  private:
    nb::object annotated(nb::handle self) {
        if (PyDict_GetItemWithError(parts_.profiler.ptr(), enabled_.ptr()) != Py_True ||
            parts_.annotate.is_none()) {
            return advance(self);
        }
        const nb::object span = parts_.annotate();
        span.attr("__enter__")();
        nb::object batch;
        try {
            batch = advance(self);
        } catch (...) {
            span.attr("__exit__")(nb::none(), nb::none(), nb::none());
            throw;
        }
        span.attr("__exit__")(nb::none(), nb::none(), nb::none());
        return batch;
    }

    void note_given() {
        if (parts_.progress.is_valid()) {
            static PyObject *const name = PyUnicode_InternFromString("given");
            note(name, nb::steal(PyLong_FromSize_t(++given_)));
        }
    }

    void note_end() {
        if (parts_.progress.is_valid()) {
            static PyObject *const name = PyUnicode_InternFromString("ended");
            note(name, nb::borrow(Py_True));
        }
    }

    void note(PyObject *name, const nb::object &value) const {
        if (!value.is_valid() || PyObject_SetAttr(parts_.progress.ptr(), name, value.ptr()) != 0) {
            throw nb::python_error();
        }
    }

    // Where the indices of one batch are, and what they came in.
    struct Taken {
        unstarve::Cut cut;
        std::optional<Index> keeper;  // of the memory that `cut` points into
        nb::object item;              // as the sampler gave them; empty where they were cut from a chunk
        bool is_end = false;
        bool is_strange = false;
    };

    nb::object advance(nb::handle self) {
        Taken taken = take(self);
        if (taken.is_end) {
            return {};
        }
        nb::object batch = taken.is_strange ? parts_.fetch(taken.item) : made_of(taken);
        ++taken_;
        return batch;
    }

    Taken take(nb::handle self) {
        const nb::ft_object_guard guard(self);
        Taken taken;
        if (whole_) {
            taken.item = next_of(source_);
            taken.is_end = !taken.item.is_valid();
            if (!taken.is_end) {
                understand(taken);
            }
            return taken;
        }
        while (!cutter_.has_batch() && !is_used_up_) {
            const nb::object chunk = next_of(source_);
            if (!chunk.is_valid()) {
                is_used_up_ = true;
                break;
            }
            Index indices = nb::cast<Index>(chunk);
            cutter_.add(indices.data(), indices.shape(0));
            chunk_ = std::move(indices);
        }
        taken.keeper = chunk_;
        taken.cut = cutter_.has_batch() ? cutter_.cut() : cutter_.last();
        taken.is_end = taken.cut.count == 0;
        return taken;
    }

    void understand(Taken &taken) const {
        if (std::optional<unstarve::Cut> plain = indices_in(taken.item)) {
            taken.cut = std::move(*plain);
            return;
        }
        const nb::object array = parts_.as_index(taken.item);
        taken.is_strange = array.is_none();
        if (!taken.is_strange) {
            taken.keeper = nb::cast<Index>(array);
            taken.cut = {taken.keeper->data(), taken.keeper->shape(0)};
        }
    }

    nb::object made_of(Taken &taken) {
        const auto left_to_torch = [&] {
            return parts_.fetch(taken.item.is_valid() ? taken.item : nb::object(list_of(taken.cut)));
        };
        unstarve::Cut found;
        if (table_.has_value()) {
            found = {taken.cut.index, taken.cut.count};
            if (!unstarve::look_up(table_->data(), table_->shape(0), found)) {
                return left_to_torch();
            }
        }
        try {
            return gathered(table_.has_value() ? found : taken.cut);
        } catch (const std::out_of_range &) {
            return left_to_torch();
        }
    }

    // What is to be copied from one leaf, and where to.
    struct Copy {
        unstarve::Rows rows;
        Recycled::Batch out;
    };

    nb::object gathered(const unstarve::Cut &rows) {
        if (parts_.leaves.size() == 1) {
            Copy copy = room_for(parts_.leaves[0], rows);
            run(&copy, 1, rows);
            return parts_.build.is_none() ? std::move(copy.out.tensor) : built(&copy, 1);
        }
        std::vector<Copy> copies;
        copies.reserve(parts_.leaves.size());
        for (Leaf &leaf : parts_.leaves) {
            copies.push_back(room_for(leaf, rows));
        }
        run(copies.data(), copies.size(), rows);
        return built(copies.data(), copies.size());
    }

    nb::object built(Copy *copies, std::size_t count) const {
        nb::object tensors = nb::steal(PyList_New(static_cast<Py_ssize_t>(count)));
        if (!tensors.is_valid()) {
            throw nb::python_error();
        }
        for (std::size_t i = 0; i < count; ++i) {
            PyList_SET_ITEM(tensors.ptr(), static_cast<Py_ssize_t>(i), copies[i].out.tensor.release().ptr());
        }
        const bool is_list = parts_.build.ptr() == reinterpret_cast<PyObject *>(&PyList_Type);
        return is_list ? tensors : parts_.build(tensors);
    }

    static Copy room_for(Leaf &leaf, const unstarve::Cut &rows) {
        Copy copy{{memory_of(leaf.tensor), leaf.count, leaf.row_bytes}, leaf.batches.take(rows.count)};
        const bool has_source = copy.rows.data != nullptr || leaf.count * leaf.row_bytes == 0;
        const bool has_room = copy.out.memory != nullptr || rows.count * leaf.row_bytes == 0;
        if (!has_source || !has_room) {
            throw std::runtime_error("a tensor of the dataset has lost its memory during the epoch");
        }
        return copy;
    }

    void run(const Copy *copies, std::size_t count, const unstarve::Cut &rows) const {
        std::size_t total_bytes = 0;
        for (std::size_t i = 0; i < count; ++i) {
            total_bytes += rows.count * copies[i].rows.row_bytes;
        }
        std::optional<nb::gil_scoped_release> unlocked;
        if (total_bytes >= min_unlocked_bytes) {
            unlocked.emplace();
        }
        for (std::size_t i = 0; i < count; ++i) {
            unstarve::gather(copies[i].rows, rows.index, rows.count, copies[i].out.memory, threads_);
        }
    }

    nb::object source_;  // an iterator over chunks of indices, or over whole batches of them
    bool whole_;
    unstarve::Cutter cutter_;
    std::optional<Index> chunk_;
    bool is_used_up_ = false;
    std::optional<Index> table_;  // what an index of the sampler means, where the dataset is a subset
    Parts parts_;
    unsigned threads_;
    nb::str enabled_;
    std::size_t taken_ = 0;
    std::size_t given_ = 0;  // `progress.given`
};

PyObject *iternext(PyObject *self) {
    try {
        return nb::inst_ptr<Batches>(self)->next(self).release().ptr();
    } catch (nb::python_error &error) {
        error.restore();
    } catch (const std::bad_alloc &) {
        PyErr_NoMemory();
    } catch (const std::exception &error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
}

int traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    return nb::inst_ready(self) ? nb::inst_ptr<Batches>(self)->traverse(visit, arg) : 0;
}

int clear(PyObject *self) {
    nb::inst_ptr<Batches>(self)->clear();
    return 0;
}

PyType_Slot slots[] = {{Py_tp_iter, reinterpret_cast<void *>(PyObject_SelfIter)},
                       {Py_tp_iternext, reinterpret_cast<void *>(iternext)},
                       {Py_tp_traverse, reinterpret_cast<void *>(traverse)},
                       {Py_tp_clear, reinterpret_cast<void *>(clear)},
                       {0, nullptr}};

}  // namespace

void bind_batches(nb::module_ &module) {
    nb::class_<Batches>(module, "Batches", nb::type_slots(slots),
                        "Batches gathered from tensors; see unstarve.fixes.loader.engines.gathered_batches for its arguments.")
        .def(nb::init<nb::object, bool, std::size_t, bool, nb::list, std::optional<Index>, nb::object, nb::object,
                      nb::object, nb::object, nb::object, nb::object, nb::dict, unsigned>(),
             nb::kw_only(), "source"_a, "whole"_a, "batch_size"_a, "drop_last"_a, "leaves"_a,
             "table"_a.noconvert().none(), "empty_like"_a, "storage_uses"_a.none(), "build"_a.none(), "as_index"_a, "fetch"_a,
             "annotate"_a.none(), "profiler"_a, "threads"_a = 0)
        .def_prop_ro("taken", &Batches::taken, "Batches given so far.")
        .def_prop_rw("progress", &Batches::progress, &Batches::count_into, "Counts batches, and exceptions in their place.");
}
