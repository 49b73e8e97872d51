#include "pictures.h"


#include "cutting.h"

namespace unstarve {

Target Batch::at(std::size_t picture) const {
    Target target = first;
    target.data += picture * 3 * target.height * target.width * target.item_bytes;
    return target;
}

std::vector<Result> cut_pixels(const std::vector<Pixels> &pictures, const std::vector<Cut> &cuts,
                               const Batch &batch, unsigned threads) {
    return for_each_picture(pictures.size(), threads, [&](std::size_t at, Scratch &scratch) {
        const Pixels &picture = pictures[at];
        const Window window = window_of(cuts[at], {picture.height, picture.width});
        scratch.resizer.start(window.height, window.width, cuts[at].flip, batch.at(at));
        std::uint8_t *const row = scratch.row_for(window.width);
        for (std::size_t y = 0; y < window.height; ++y) {
            const std::uint8_t *const from =
                picture.data + ((window.top + y) * picture.width + window.left) * 3;
            widen(from, window.width, row);
            scratch.resizer.add_row(row);
        }
        return Outcome::decoded;
    });
}

}  // namespace unstarve
