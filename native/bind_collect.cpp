// What unstarve.collect counts and keeps for every batch.
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

// One queue that workers put their batches into: when each of them arrived, and when it was unpacked.
class Receiving {
public:
    Receiving(Ledger &ledger, int kind, const std::string &letters, nb::object queue_ref, nb::object get,
              nb::object receive, nb::object pending)
        : ledger_(ledger),
          layout_(kind, letters),
          queue_ref_(std::move(queue_ref)),
          get_(std::move(get)),
          receive_(std::move(receive)),
          pending_(std::move(pending)) {}

    nb::object receive() {
        nb::object message = known(PyObject_CallNoArgs(receive_.ptr()));
        arrived_ns_ = clock_ns();
        return message;
    }

    nb::object get(nb::handle block, nb::handle timeout) {
        const nb::object queue = known(PyObject_CallNoArgs(queue_ref_.ptr()));
        PyObject *const arguments[] = {queue.ptr(), block.ptr(), timeout.ptr()};
        nb::object item = known(PyObject_Vectorcall(get_.ptr(), arguments, 3, nullptr));
        PyObject *const tuple = item.ptr();
        if (PyTuple_CheckExact(tuple) && PyTuple_GET_SIZE(tuple) > 0 &&
            PyLong_CheckExact(PyTuple_GET_ITEM(tuple, 0))) {
            note(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, 0)));
        }
        return item;
    }

    std::int64_t loader = 0;
    std::int64_t epoch = 0;

private:
    void note(std::int64_t task) {
        const std::int64_t now_ns = clock_ns();
        if (pending_.is_none()) {
            const std::int64_t row[] = {loader, 0, epoch, task, arrived_ns_, now_ns, now_ns};
            try {
                layout_.append(row, ledger_);
            } catch (const std::bad_alloc &) {
                // Better without its row than without the batch, which is out of the queue already.
            }
        } else {
            pending_(nb::make_tuple(loader, 0, epoch, task, arrived_ns_, now_ns));
        }
    }

    Ledger &ledger_;
    Layout layout_;
    nb::object queue_ref_;
    nb::object get_;
    nb::object receive_;
    nb::object pending_;
    std::int64_t arrived_ns_ = 0;
};

nb::tuple as_tuple(const Moment &moment) {
    return nb::make_tuple(moment.wall_ns, moment.cpu_ns, moment.queued_ns);
}

nb::tuple read_all(Counters &counters) {
    const Reading r = counters.read();
    return nb::make_tuple(r.wall_ns, r.cpu_ns, r.system_ns, r.queued_ns, r.asked_bytes, r.storage_bytes,
                          r.major_faults, r.switches, r.delay_ns);
}

void append(Ledger &ledger, int kind, const nb::bytes &row) { ledger.append(kind, row.c_str(), row.size()); }

nb::list take_rows(Ledger &ledger) {
    nb::list taken;
    for (const auto &[kind, rows] : ledger.take()) {
        taken.append(nb::make_tuple(kind, nb::bytes(rows.data(), rows.size())));
    }
    return taken;
}

void record_work(Work &work, std::int64_t flags, std::int64_t samples, std::int64_t slow_index,
                 std::int64_t opens) {
    if (!work.record(flags, samples, slow_index, opens)) {
        fail("a number of this batch does not fit its field");
    }
}

}  // namespace

void bind_collect(nb::module_ &module) {
    // Objects that live as long as the process are no leak; a warning would go into training's terminal.
    nb::set_leak_warnings(false);
    nb::class_<Ledger>(module, "Ledger", "The rows of one process on their way to its file.")
        .def(nb::init<>())
        .def("append", &append, "kind"_a, "row"_a)
        .def("take", &take_rows)
        .def_rw("active", &Ledger::active)
        .def_rw("special", &Ledger::special)
        .def_rw("has_device", &Ledger::has_device)
        .def_rw("own_ns", &Ledger::own_ns)
        .def_rw("next_flush_ns", &Ledger::next_flush_ns);
    nb::class_<Counters>(module, "Counters", "The counters of the thread that uses it.")
        .def(nb::init<int, int, int, std::int64_t>(), "schedstat"_a, "io"_a, "stat"_a, "tick_ns"_a)
        .def("read", &read_all)
        .def("ask", [](Counters &counters, bool in_line) { return as_tuple(counters.ask(in_line)); }, "in_line"_a)
        .def("got", [](Counters &counters, bool in_line) { return as_tuple(counters.got(in_line)); }, "in_line"_a)
        .def("queued", &Counters::queued)
        .def("close", &Counters::close)
        .def_prop_ro("schedstat", &Counters::schedstat)
        .def_prop_ro("io", &Counters::io)
        .def_prop_ro("stat", &Counters::stat)
        .def_rw("depth", &Counters::depth);
    nb::class_<Receiving>(module, "Receiving", "One queue that workers put their batches into.")
        .def(nb::init<Ledger &, int, const std::string &, nb::object, nb::object, nb::object, nb::object>(),
             "ledger"_a, "kind"_a, "layout"_a, "queue_ref"_a, "get"_a, "receive"_a, "pending"_a.none(),
             nb::keep_alive<1, 2>())
        .def("receive", &Receiving::receive)
        .def("get", &Receiving::get, "block"_a = true, "timeout"_a.none() = nb::none())
        .def_rw("loader", &Receiving::loader)
        .def_rw("epoch", &Receiving::epoch);
    nb::class_<Work>(module, "Work", "The batches that one worker makes, or the training process for one loader.")
        .def(nb::init<Ledger &, int, const std::string &>(), "ledger"_a, "kind"_a, "layout"_a,
             nb::keep_alive<1, 2>())
        .def("begin", &Work::begin, "counters"_a, "light"_a)
        .def("collate", &Work::collate, "counters"_a)
        .def("done", &Work::done, "counters"_a)
        .def("record", &record_work, "flags"_a, "samples"_a, "slow_index"_a, "opens"_a)
        .def_rw("loader", &Work::loader)
        .def_rw("iteration", &Work::iteration)
        .def_rw("task", &Work::task)
        .def_rw("received_ns", &Work::received_ns)
        .def_rw("slow_ns", &Work::slow_ns);
}
