// A wait of training for its next batch: what happens for every batch of every training that is recorded.
//
// The interpreter's lock is kept: a reading is shorter than giving it away and getting it back.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <new>
#include <string>
#include <utility>

#include "bind.h"
#include "bind_objects.h"
#include "counters.h"
#include "ledger.h"
#include "waits.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace unstarve;

namespace {

constexpr std::int64_t kNested = 1;     // NESTED in record/format.py
constexpr Py_ssize_t kMostItems = 64;  // as in collect/describe.py

// Names of attributes, made once: a lookup by a C string would make one each time. Never freed.
struct Names {
    static PyObject *intern(const char *name) { return PyUnicode_InternFromString(name); }
    PyObject *take = intern("take");
    PyObject *weigh = intern("weigh");
    PyObject *ended = intern("ended");
    PyObject *ask_device = intern("ask_device");
    PyObject *got_device = intern("got_device");
    PyObject *not_recorded = intern("not_recorded");
    PyObject *flush = intern("flush");
    PyObject *nbytes = intern("nbytes");
    PyObject *shape = intern("shape");
    PyObject *rcvd_idx = intern("_rcvd_idx");
    PyObject *task_info = intern("_task_info");
    PyObject *outstanding = intern("_tasks_outstanding");
};

const Names &names() {
    static const Names all;
    return all;
}

// To be called where an error of our bookkeeping is caught. A signal may come at any time: what is no Exception
// (Ctrl-C, an exit, the end of a generator) is meant for training, and goes on.
void pass_on_what_is_not_ours(const nb::python_error &caught) {
    if (!caught.matches(PyExc_Exception)) {
        throw;
    }
}

struct Extent {
    std::int64_t size = kUnknown;
    std::int64_t nbytes = kUnknown;
};

// A wait, and what the interpreter knows about it.
struct BoundWait : Wait {
    using Wait::Wait;

    // The thread that iterates, and its counters.
    unsigned long ident = 0;
    nb::object counters;
    Counters *its_counters = nullptr;
    // torch's iterator has workers, and gives their batches in order.
    bool has_workers = false;
    bool in_order = false;
    // torch's number of the batch that was taken out of the workers' queue last.
    std::int64_t last_task = kUnknown;
    // Called, it tells how much lies in the workers' queue; or, where `queue_room` is not 0, what is left of it.
    nb::object queue_value;
    std::int64_t queue_room = 0;
    // Batches are tensors, or plain lists or tuples of them, whose first dimension counts samples.
    bool usual = false;
    nb::object tensor_type;

    void use(nb::object of_thread, unsigned long its_ident, std::int64_t its_number) {
        its_counters = &nb::cast<Counters &>(of_thread);
        counters = std::move(of_thread);
        ident = its_ident;
        thread = its_number;
    }

    void fetch_by(Work &its_work) { work = &its_work; }

    void begin(nb::handle source) {
        if (its_counters == nullptr) {
            fail("whose wait it is was not told");
        }
        enter(*its_counters, ready(source));
    }

    std::int64_t ready(nb::handle source) const {
        if (!queue_value.is_valid() || queue_value.is_none()) {
            return kUnknown;
        }
        const std::int64_t told = number_of(known(PyObject_CallNoArgs(queue_value.ptr())));
        const Py_ssize_t tasks = PyObject_Size(attribute(source, names().task_info).ptr());
        const std::int64_t held = tasks - number_of(attribute(source, names().outstanding));
        return (queue_room != 0 ? queue_room - told : told) + held;
    }

    std::int64_t task(nb::handle source) const {
        if (!has_workers) {
            return work != nullptr ? index : kUnknown;
        }
        return in_order ? number_of(attribute(source, names().rcvd_idx)) - 1 : last_task;
    }

    bool weigh_usual(PyObject *batch, Extent &extent) const {
        const auto type = reinterpret_cast<PyTypeObject *>(tensor_type.ptr());
        extent = {kUnknown, 0};
        const auto add = [&](PyObject *item) {
            if (Py_TYPE(item) != type) {
                return false;
            }
            extent.nbytes += number_of(attribute(item, names().nbytes));
            if (extent.size < 0) {
                const nb::object shape = attribute(item, names().shape);
                if (!PyTuple_Check(shape.ptr()) || PyTuple_GET_SIZE(shape.ptr()) == 0) {
                    return false;
                }
                extent.size = number_of(PyTuple_GET_ITEM(shape.ptr(), 0));
            }
            return true;
        };
        if (!PyList_CheckExact(batch) && !PyTuple_CheckExact(batch)) {
            return add(batch);
        }
        const Py_ssize_t count = PySequence_Fast_GET_SIZE(batch);
        bool all = count > 0 && count <= kMostItems;
        for (Py_ssize_t at = 0; all && at < count; ++at) {
            all = add(PySequence_Fast_GET_ITEM(batch, at));
        }
        return all;
    }

    Extent weigh(nb::handle tap, nb::handle batch) const {
        try {
            Extent extent;
            if (usual && weigh_usual(batch.ptr(), extent)) {
                return extent;
            }
        } catch (nb::python_error &error) {
            pass_on_what_is_not_ours(error);
            // A sparse tensor has no bytes: not that usual.
        }
        const nb::object found = call(attribute(tap, names().weigh), batch);
        return {number_of(found[0]), number_of(found[1])};
    }

    void note(std::int64_t its_task, std::int64_t size, std::int64_t nbytes, std::int64_t flags,
              std::int64_t block) {
        if (!record(its_task, size, nbytes, flags, block)) {
            fail("a number of this batch does not fit its field");
        }
    }
};

void not_recorded(nb::handle tap, nb::handle error) {
    try {
        call(attribute(tap, names().not_recorded), error);
    } catch (nb::python_error &failure) {
        pass_on_what_is_not_ours(failure);
        // Nobody left to tell.
    }
}

// Keeps the books of a wait: what fails there is noted and never reaches training.
template <typename Books>
void keep(nb::handle tap, const Books &books) {
    try {
        books();
    } catch (nb::python_error &error) {
        pass_on_what_is_not_ours(error);
        not_recorded(tap, error.value());
    } catch (const std::bad_alloc &) {
        not_recorded(tap, PyExc_MemoryError);
    }
}

// However a wait ends, the next one begins anew.
struct Ending {
    Wait &wait;
    bool has_batch = false;
    ~Ending() {
        if (wait.busy) {
            wait.leave();
        }
        if (has_batch) {
            wait.done();
        }
    }
};

[[noreturn]] void end_wait(BoundWait &wait, nb::handle tap, nb::handle mark, std::int64_t ask_ns) {
    nb::python_error error;  // holds training's own exception until it is thrown on
    const std::int64_t end_ns = wait.leave();
    try {
        attribute(tap, names().ended)(mark, ask_ns, end_ns, error.value());
    } catch (nb::python_error &failure) {
        PyException_SetContext(failure.value().ptr(), error.value().inc_ref().ptr());
        pass_on_what_is_not_ours(failure);
        // Training's exception is what counts.
    }
    throw error;
}

// What `Tap.take` does, for a batch that is nothing special.
nb::object take(BoundWait &wait, nb::handle tap, nb::handle advance, nb::handle source) {
    Ledger &ledger = wait.ledger;
    if (wait.busy || !ledger.active) {
        return call(advance, source);
    }
    if (ledger.special || wait.ident != PyThread_get_thread_ident()) {
        return attribute(tap, names().take)(advance, source);
    }
    const nb::object counters = wait.counters;  // kept, though another thread may go on with the iteration
    nb::object mark = nb::none();
    Ending ending{wait};
    keep(tap, [&] {
        wait.begin(source);
        if (ledger.has_device && !wait.nested()) {
            mark = attribute(tap, names().ask_device)();
        }
    });
    if (!wait.busy) {
        return call(advance, source);
    }
    const std::int64_t ask_ns = wait.ask();
    PyObject *batch = PyObject_CallOneArg(advance.ptr(), source.ptr());
    if (batch == nullptr) {
        end_wait(wait, tap, mark, ask_ns);
    }
    const std::int64_t got_ns = wait.got();
    ending.has_batch = true;
    nb::object result = nb::steal(batch);
    keep(tap, [&] {
        if (!mark.is_none()) {
            attribute(tap, names().got_device)(mark, ask_ns, got_ns);
        }
        const Extent extent = wait.weigh(tap, result);
        wait.note(wait.task(source), extent.size, extent.nbytes, wait.nested() ? kNested : 0, 0);
        if (got_ns >= ledger.next_flush_ns) {
            call(attribute(tap, names().flush), nb::int_(got_ns));
        }
    });
    return result;
}

}  // namespace

void bind_wait(nb::module_ &module) {
    nb::class_<BoundWait>(module, "Wait", "The waits of one iteration over one loader.")
        .def(nb::init<Ledger &, int, const std::string &>(), "ledger"_a, "kind"_a, "layout"_a,
             nb::keep_alive<1, 2>())
        .def("take", &take, "tap"_a, "advance"_a, "source"_a.none())
        .def("sampled", &Wait::sampled, "since_ns"_a)
        .def("use", &BoundWait::use, "counters"_a, "ident"_a, "thread"_a)
        .def("begin", &BoundWait::begin, "source"_a.none())
        .def("ask", &Wait::ask)
        .def("got", &Wait::got)
        .def("leave", &Wait::leave)
        .def("task", &BoundWait::task, "source"_a.none())
        .def("record", &BoundWait::note, "task"_a, "size"_a, "nbytes"_a, "flags"_a, "block"_a)
        .def("done", &Wait::done)
        .def_prop_ro("nested", &Wait::nested)
        .def_ro("busy", &Wait::busy)
        .def_rw("seen_inside", &Wait::seen_inside)
        .def_ro("ident", &BoundWait::ident)
        .def_rw("number", &Wait::number)
        .def_rw("epoch", &Wait::epoch)
        .def_rw("index", &Wait::index)
        .def_rw("thread", &Wait::thread)
        .def_rw("sampler_ns", &Wait::sampler_ns)
        .def("fetch_by", &BoundWait::fetch_by, "work"_a, nb::keep_alive<1, 2>())
        .def_rw("has_workers", &BoundWait::has_workers)
        .def_rw("in_order", &BoundWait::in_order)
        .def_rw("last_task", &BoundWait::last_task)
        .def_rw("queue_value", &BoundWait::queue_value, nb::for_setter(nb::arg("value").none()))
        .def_rw("queue_room", &BoundWait::queue_room)
        .def_rw("usual", &BoundWait::usual)
        .def_rw("tensor_type", &BoundWait::tensor_type);
}
