// Python's objects in native code; whatever fails is thrown as nanobind::python_error.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace unstarve {

[[noreturn]] inline void fail(const char *message) {
    PyErr_SetString(PyExc_ValueError, message);
    throw nanobind::python_error();
}

// A new reference that an interpreter's function has returned.
inline nanobind::object known(PyObject *found) {
    if (found == nullptr) {
        throw nanobind::python_error();
    }
    return nanobind::steal(found);
}

inline nanobind::object call(nanobind::handle callable, nanobind::handle argument) {
    return known(PyObject_CallOneArg(callable.ptr(), argument.ptr()));
}

inline nanobind::object attribute(nanobind::handle object, PyObject *name) {
    return known(PyObject_GetAttr(object.ptr(), name));
}

inline std::int64_t number_of(nanobind::handle object) {
    const std::int64_t number = PyLong_AsLongLong(object.ptr());
    if (number == -1 && PyErr_Occurred() != nullptr) {
        throw nanobind::python_error();
    }
    return number;
}

}  // namespace unstarve
