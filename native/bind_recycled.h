// Memory of batches, used again once nobody can see it any more. Knows Python: its tensors are torch's.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <vector>

// Batches of one tensor. Those of the usual size, which is that of the first until another comes twice in a
// row, are recycled; others get memory of their own.
//
// A handed-out batch is an alias of a tensor that stays here. Whatever the user makes of it (views, numpy
// arrays, autograd graphs) holds the tensor's storage, so that the storage's count of users tells when all of
// it is gone. The storage has a Python object, too, which does not count as a user: its own reference count
// tells whether anybody holds that. A storage that has moved, into shared memory say, is not used again:
// other processes may see it.
class Recycled {
  public:
    struct Batch {
        nanobind::object tensor;
        std::byte *memory;
    };

    // `allocate`: a number of rows → an empty batch with `row_bytes` for each. `empty_like` and `storage_uses`
    // are torch's; without the latter every batch gets memory of its own.
    Recycled(std::size_t row_bytes, nanobind::object allocate, nanobind::object empty_like,
             nanobind::object storage_uses);

    // An empty batch of so many rows.
    Batch take(std::size_t rows);

    int traverse(visitproc visit, void *arg) const;

  private:
    struct Buffer {
        nanobind::object tensor;
        nanobind::object storage;
        nanobind::object storage_id;
        std::byte *memory;
        Py_ssize_t own_references;  // to the storage's Python object
        long own_uses;              // of the storage
    };

    bool is_free(const Buffer &buffer) const;
    long uses_of(const nanobind::object &storage_id) const;
    nanobind::object allocated(std::size_t rows) const;
    Batch kept(nanobind::object tensor);

    std::size_t row_bytes_;
    nanobind::object allocate_;
    nanobind::object empty_like_;
    nanobind::object storage_uses_;
    std::size_t usual_rows_ = 0;
    std::size_t unusual_rows_ = 0;  // of the last batch of another size
    std::vector<Buffer> buffers_;
    std::size_t next_ = 0;
};

// Where a tensor's memory begins.
std::byte *memory_of(nanobind::handle tensor);
