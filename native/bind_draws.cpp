#include <nanobind/ndarray.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "bind.h"
#include "draws.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Bytes = nb::ndarray<std::uint8_t, nb::shape<unstarve::TorchGenerator::state_bytes>, nb::device::cpu, nb::c_contig>;
using Numbers = nb::ndarray<std::uint32_t, nb::ndim<1>, nb::device::cpu, nb::c_contig>;
using Floats = nb::ndarray<float, nb::ndim<1>, nb::device::cpu, nb::c_contig>;
using Sizes = nb::ndarray<const std::int64_t, nb::shape<-1, 2>, nb::device::cpu, nb::c_contig>;
using Rows = nb::ndarray<std::int64_t, nb::shape<-1, 5>, nb::device::cpu, nb::c_contig>;

std::byte *bytes_of(const Bytes &state) { return reinterpret_cast<std::byte *>(state.data()); }

// Numbers that the generator would give next, and logarithms of shapes made of them.
void peek(const Bytes &state, const Numbers &numbers, const Floats &logs, float low, float high, bool fused) {
    if (logs.shape(0) != numbers.shape(0)) {
        throw nb::value_error("there must be as many logarithms as numbers");
    }
    const nb::gil_scoped_release unlocked;
    unstarve::TorchGenerator generator(bytes_of(state));
    for (std::size_t at = 0; at < numbers.shape(0); ++at) {
        numbers.data()[at] = generator.next();
        logs.data()[at] = unstarve::uniform(numbers.data()[at], low, high, fused);
    }
}

// Draws from these numbers, and moves the state on; False, with nothing changed, if there are too few.
bool draw(const Bytes &state, const Numbers &numbers, const Floats &shapes, const Sizes &sizes, float low, float high,
          double flip, bool fused, const Rows &rows) {
    if (shapes.shape(0) != numbers.shape(0) || rows.shape(0) != sizes.shape(0)) {
        throw nb::value_error("there must be a shape for each number and a row for each size");
    }
    const nb::gil_scoped_release unlocked;
    std::vector<unstarve::DrawnCut> cuts(sizes.shape(0));
    const unstarve::Draws draws{numbers.data(), shapes.data(), numbers.shape(0), low, high, flip, fused};
    const std::size_t drawn = unstarve::draw_cuts(draws, sizes.data(), cuts);
    if (drawn > numbers.shape(0)) {
        return false;
    }
    unstarve::TorchGenerator generator(bytes_of(state));
    for (std::size_t at = 0; at < drawn; ++at) {
        generator.next();
    }
    generator.store(bytes_of(state));
    std::int64_t *row = rows.data();
    for (const unstarve::DrawnCut &cut : cuts) {
        for (const std::int64_t number : {cut.top, cut.left, cut.height, cut.width, cut.flipped}) {
            *row++ = number;
        }
    }
    return true;
}

}  // namespace

void bind_draws(nb::module_ &module) {
    module.def("peek_draws", &peek, "state"_a.noconvert(), "numbers"_a.noconvert(), "logs"_a.noconvert(), "low"_a,
               "high"_a, "fused"_a, "Fill in the next numbers of a torch.Generator's state, which stays as it is.");
    module.def("draw_cuts", &draw, "state"_a.noconvert(), "numbers"_a.noconvert(), "shapes"_a.noconvert(),
               "sizes"_a.noconvert(), "low"_a, "high"_a, "flip"_a, "fused"_a, "rows"_a.noconvert(),
               "Draw top, left, height, width and flip of each image; False if there are too few numbers.");
}
