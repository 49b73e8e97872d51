#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "bind.h"
#include "images.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Memory = std::pair<std::uintptr_t, std::uint64_t>;  // address, bytes

// One row per image: whole, top, left, height, width, flip; height and width that the box is resized to, top and left of
// the batch's part of that: four zeros where the batch takes all of it.
using Cuts = nb::ndarray<const std::int64_t, nb::shape<-1, 10>, nb::device::cpu, nb::c_contig>;

// Where and as what images are written: memory, height, width, bytes of an item, channels_last, table, and how that
// was computed: the means and stds of three channels as floats, or nothing.
using Out = std::tuple<Memory, std::size_t, std::size_t, std::size_t, bool, nb::bytes, nb::bytes>;

// Of the numbers of one side: what is resized to, where the batch's part begins, and how long that is.
void check_resized(std::int64_t all, std::int64_t first, std::size_t part) {
    constexpr std::int64_t limit = std::int64_t{1} << 48;  // whose products with a double's fractions are still exact
    const auto count = static_cast<std::int64_t>(part);
    if (all > limit || first < 0 || count > all || first > all - count) {
        throw nb::value_error("the batch's part must be within what an image is resized to");
    }
}

std::vector<unstarve::Cut> cuts_of(const Cuts &cuts, const unstarve::Batch &batch, std::size_t count) {
    if (cuts.shape(0) != count) {
        throw nb::value_error("there must be one cut for each image");
    }
    std::vector<unstarve::Cut> listed;
    listed.reserve(count);
    for (const std::int64_t *row = cuts.data(); row != cuts.data() + count * 10; row += 10) {
        listed.push_back({row[0] != 0, row[1], row[2], row[3], row[4], row[5] != 0});
        if (row[6] != 0 || row[7] != 0) {
            check_resized(row[6], row[8], batch.first.height);
            check_resized(row[7], row[9], batch.first.width);
            const auto number = [row](int at) { return static_cast<std::size_t>(row[at]); };
            listed.back().resized = {{number(6), number(7)}, number(8), number(9)};
        }
    }
    return listed;
}

unstarve::Batch batch_of(const Out &out, std::size_t count) {
    const auto &[memory, height, width, item_bytes, channels_last, table, scaled] = out;
    constexpr std::size_t limit = std::size_t{1} << 20;  // a side no batch has: products cannot overflow
    if (height == 0 || width == 0 || height > limit || width > limit) {
        throw nb::value_error("the batch's images have no pixels or too many");
    }
    if (item_bytes != 1 && item_bytes != 2 && item_bytes != 4) {
        throw nb::value_error("an item of the batch has 1, 2 or 4 bytes");
    }
    if (item_bytes == 1 ? table.size() != 0 : table.size() != 3 * 256 * item_bytes) {
        throw nb::value_error("the table does not fit the batch's type");
    }
    if (scaled.size() != 0 && (item_bytes != 4 || scaled.size() != sizeof(unstarve::Scaling))) {
        throw nb::value_error("only floats are computed, by three means and three stds");
    }
    if (count > memory.second / (3 * height * width * item_bytes)) {
        throw nb::value_error("the batch is too small for the images");
    }
    const auto *const entries = table.size() == 0 ? nullptr : static_cast<const std::byte *>(table.data());
    const auto *const scaling = static_cast<const unstarve::Scaling *>(scaled.size() == 0 ? nullptr : scaled.data());
    const bool computed = scaling != nullptr && unstarve::computes(*scaling, entries);
    return {{reinterpret_cast<std::byte *>(memory.first), height, width, item_bytes, channels_last, entries,
             computed ? scaling : nullptr}};
}

// Which images failed and why, and which are not for us.
nb::tuple outcome_of(const std::vector<unstarve::Result> &results) {
    nb::list failures;
    nb::list others;
    for (std::size_t at = 0; at < results.size(); ++at) {
        if (results[at].outcome == unstarve::Outcome::failed) {
            failures.append(nb::make_tuple(at, results[at].trouble));
        } else if (results[at].outcome == unstarve::Outcome::not_for_us) {
            others.append(at);
        }
    }
    return nb::make_tuple(failures, others);
}

nb::tuple cut_pixels(const std::vector<std::tuple<Memory, std::size_t, std::size_t>> &wholes, const Cuts &cuts,
                     const Out &out, unsigned threads) {
    std::vector<unstarve::Pixels> pixels;
    pixels.reserve(wholes.size());
    for (const auto &[memory, height, width] : wholes) {
        if (height == 0 || width == 0 || width > memory.second / 3 / height) {
            throw nb::value_error("an image is empty or larger than its memory");
        }
        pixels.push_back({reinterpret_cast<const std::uint8_t *>(memory.first), height, width});
    }
    const unstarve::Batch batch = batch_of(out, pixels.size());
    const std::vector<unstarve::Cut> listed = cuts_of(cuts, batch, pixels.size());
    std::vector<unstarve::Result> results;
    {
        const nb::gil_scoped_release unlocked;
        results = unstarve::cut_pixels(pixels, listed, batch, threads);
    }
    return outcome_of(results);
}

#ifdef UNSTARVE_JPEG

// Holds the bytes of Python objects in place for as long as it lives.
class Held {
  public:
    Held(const nb::list &images, bool upright) {
        views_.reserve(images.size());
        for (const nb::handle image : images) {
            Py_buffer view;
            if (PyObject_GetBuffer(image.ptr(), &view, PyBUF_SIMPLE) != 0) {
                release();
                throw nb::python_error();
            }
            views_.push_back(view);
            const auto *const bytes = static_cast<const std::uint8_t *>(view.buf);
            encoded_.push_back({bytes, static_cast<std::size_t>(view.len), upright});
        }
    }
    ~Held() { release(); }
    Held(const Held &) = delete;
    Held &operator=(const Held &) = delete;

    const std::vector<unstarve::Encoded> &encoded() const { return encoded_; }

  private:
    void release() {
        for (Py_buffer &view : views_) {
            PyBuffer_Release(&view);
        }
        views_.clear();
    }

    std::vector<Py_buffer> views_;
    std::vector<unstarve::Encoded> encoded_;
};

nb::tuple decode_cuts(const nb::list &images, const Cuts &cuts, const Out &out, unsigned threads, bool upright) {
    const Held held(images, upright);
    const unstarve::Batch batch = batch_of(out, held.encoded().size());
    const std::vector<unstarve::Cut> listed = cuts_of(cuts, batch, held.encoded().size());
    std::vector<unstarve::Result> results;
    {
        const nb::gil_scoped_release unlocked;
        results = unstarve::decode_cuts(held.encoded(), listed, batch, threads);
    }
    return outcome_of(results);
}

// Height, width, orientation and is_plain; or what is wrong; or None where it is not for us.
nb::list measure(const nb::list &images, unsigned threads, bool upright) {
    const Held held(images, upright);
    std::vector<unstarve::Measured> measured;
    {
        const nb::gil_scoped_release unlocked;
        measured = unstarve::measure(held.encoded(), threads);
    }
    nb::list sizes;
    for (const unstarve::Measured &one : measured) {
        switch (one.result.outcome) {
            case unstarve::Outcome::decoded:
                sizes.append(nb::make_tuple(one.height, one.width, one.orientation, one.is_plain));
                break;
            case unstarve::Outcome::failed: sizes.append(one.result.trouble); break;
            case unstarve::Outcome::not_for_us: sizes.append(nb::none()); break;
        }
    }
    return sizes;
}

// What is wrong, or None.
nb::object decode_whole(const nb::list &images, std::size_t height, std::size_t width, const Memory &out,
                        bool upright) {
    const Held held(images, upright);
    if (held.encoded().size() != 1 || height == 0 || width > out.second / 3 / height) {
        throw nb::value_error("one image and the memory for it are needed");
    }
    unstarve::Result result;
    {
        const nb::gil_scoped_release unlocked;
        result = unstarve::decode_whole(held.encoded()[0], height, width, reinterpret_cast<std::uint8_t *>(out.first));
    }
    return result.outcome == unstarve::Outcome::decoded ? nb::object(nb::none()) : nb::cast(result.trouble);
}

#endif

}  // namespace

void bind_images(nb::module_ &module) {
    module.def("cut_pixels", &cut_pixels, "wholes"_a, "cuts"_a.noconvert(), "out"_a, "threads"_a,
               "Cut, resize, flip and finish images of 3 bytes per pixel; failures and, always empty, others.");
#ifdef UNSTARVE_JPEG
    module.def("decode_cuts", &decode_cuts, "images"_a, "cuts"_a.noconvert(), "out"_a, "threads"_a, "upright"_a,
               "Decode, cut, resize, flip and finish JPEGs; failures, and the places of those it does not decode.");
    module.def("measure_images", &measure, "images"_a, "threads"_a, "upright"_a,
               "Height, width, orientation and is_plain of each JPEG, what is wrong, or None where it is not for us.");
    module.def("decode_whole", &decode_whole, "images"_a, "height"_a, "width"_a, "out"_a, "upright"_a,
               "Decode one JPEG to 3 bytes per pixel; what is wrong with it, or None.");
#endif
}
