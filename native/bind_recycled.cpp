#include "bind_recycled.h"

#include <stdexcept>
#include <utility>

#include "stream.h"

namespace nb = nanobind;

namespace {

// The user holds one batch while the next is made; a few more for those who look ahead. Who holds all of them
// gets new memory for each.
constexpr std::size_t max_buffers = 4;

nb::object checked(PyObject *result) {
    if (result == nullptr) {
        throw nb::python_error();
    }
    return nb::steal(result);
}

// An attribute of torch's tensors that is written in C. Asking the class for its function once takes half as
// long as looking the attribute up for each batch.
class TensorAttribute {
  public:
    TensorAttribute(const char *name, nb::handle tensor)
        : name_(PyUnicode_InternFromString(name)), class_(tensor.type().inc_ref()) {
        const nb::object found = nb::steal(PyObject_GetAttr(class_.ptr(), name_.ptr()));
        if (!found.is_valid()) {
            PyErr_Clear();
        } else if (Py_IS_TYPE(found.ptr(), &PyMethodDescr_Type)) {
            const PyMethodDef *const method = reinterpret_cast<PyMethodDescrObject *>(found.ptr())->d_method;
            call_ = method->ml_flags == METH_NOARGS ? method->ml_meth : nullptr;
        } else if (Py_IS_TYPE(found.ptr(), &PyGetSetDescr_Type)) {
            getset_ = reinterpret_cast<PyGetSetDescrObject *>(found.ptr())->d_getset;
        }
    }

    // What `tensor.name`, or for a method `tensor.name()`, gives.
    nb::object of(nb::handle tensor) const {
        const bool is_known = tensor.type().is(class_);
        if (is_known && call_ != nullptr) {
            return checked(call_(tensor.ptr(), nullptr));
        }
        if (is_known && getset_ != nullptr) {
            return checked(getset_->get(tensor.ptr(), getset_->closure));
        }
        nb::object found = checked(PyObject_GetAttr(tensor.ptr(), name_.ptr()));
        return PyCallable_Check(found.ptr()) != 0 ? checked(PyObject_CallNoArgs(found.ptr())) : found;
    }

  private:
    nb::handle name_;   // these two are kept for good
    nb::handle class_;
    PyCFunction call_ = nullptr;
    const PyGetSetDef *getset_ = nullptr;
};

}  // namespace

std::byte *memory_of(nb::handle tensor) {
    static const TensorAttribute data_ptr("data_ptr", tensor);
    const nb::object address = data_ptr.of(tensor);
    return static_cast<std::byte *>(PyLong_AsVoidPtr(address.ptr()));
}

Recycled::Recycled(std::size_t row_bytes, nb::object allocate, nb::object empty_like, nb::object storage_uses)
    : row_bytes_(row_bytes),
      allocate_(std::move(allocate)),
      empty_like_(std::move(empty_like)),
      storage_uses_(std::move(storage_uses)) {}

long Recycled::uses_of(const nb::object &storage_id) const {
    const nb::object uses = checked(PyObject_CallOneArg(storage_uses_.ptr(), storage_id.ptr()));
    return PyLong_AsLong(uses.ptr());
}

bool Recycled::is_free(const Buffer &buffer) const {
    return Py_REFCNT(buffer.storage.ptr()) == buffer.own_references &&
           uses_of(buffer.storage_id) == buffer.own_uses && memory_of(buffer.tensor) == buffer.memory;
}

Recycled::Batch Recycled::take(std::size_t rows) {
    if (rows != usual_rows_) {
        if (usual_rows_ != 0 && rows != std::exchange(unusual_rows_, rows)) {
            nb::object tensor = allocated(rows);
            std::byte *const memory = memory_of(tensor);
            return {std::move(tensor), memory};
        }
        usual_rows_ = rows;
        buffers_.clear();
        next_ = 0;
    }
    for (std::size_t tried = 0; tried < buffers_.size(); ++tried) {
        const std::size_t at = (next_ + tried) % buffers_.size();
        if (is_free(buffers_[at])) {
            next_ = at + 1;
            // Not a view, and with a version of its own: to autograd it is a new tensor.
            static const TensorAttribute data("data", buffers_[at].tensor);
            return {data.of(buffers_[at].tensor), buffers_[at].memory};
        }
    }
    return kept(buffers_.empty() ? allocated(rows)
                                 : checked(PyObject_CallOneArg(empty_like_.ptr(), buffers_[0].tensor.ptr())));
}

nb::object Recycled::allocated(std::size_t rows) const {
    nb::object tensor = allocate_(rows);
    if (nb::cast<std::size_t>(tensor.attr("nbytes")) != rows * row_bytes_) {
        throw std::runtime_error("room was made for a batch of another size");
    }
    return tensor;
}

Recycled::Batch Recycled::kept(nb::object tensor) {
    std::byte *const memory = memory_of(tensor);
#ifdef Py_GIL_DISABLED
    const bool can_recycle = false;  // reference counts are not exact there
#else
    // What is made in inference mode may not be used outside of it.
    const bool can_recycle = !storage_uses_.is_none() && !nb::cast<bool>(tensor.attr("is_inference")());
#endif
    if (!can_recycle) {
        return {std::move(tensor), memory};
    }
    nb::object storage = tensor.attr("untyped_storage")();
    unstarve::prefer_huge_pages(memory, nb::cast<std::size_t>(storage.attr("nbytes")()));
    nb::object storage_id = storage.attr("_cdata");
    const long own_uses = uses_of(storage_id);
    nb::object alias = tensor.attr("data");
    Buffer buffer{std::move(tensor), std::move(storage), std::move(storage_id), memory, 0, own_uses};
    buffer.own_references = Py_REFCNT(buffer.storage.ptr());
    if (buffers_.size() < max_buffers) {
        buffers_.push_back(std::move(buffer));
    } else {
        next_ %= max_buffers;
        buffers_[next_++] = std::move(buffer);  // whoever holds the old one keeps it
    }
    return {std::move(alias), memory};
}

int Recycled::traverse(visitproc visit, void *arg) const {
    Py_VISIT(allocate_.ptr());
    Py_VISIT(empty_like_.ptr());
    Py_VISIT(storage_uses_.ptr());
    for (const Buffer &buffer : buffers_) {
        Py_VISIT(buffer.tensor.ptr());
        Py_VISIT(buffer.storage.ptr());
    }
    return 0;
}
