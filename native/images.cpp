#include "images.h"

#include <algorithm>

#include "cutting.h"

namespace unstarve {
namespace {

const LineResizer lines = best_line_resizer();

// Asks for memory that is soon read: while rows are resized, those after them come. The processor alone does not see
// where a row of a window goes on.
void call_for(const std::uint8_t *bytes, std::size_t count) {
    for (std::size_t at = 0; at < count; at += 64) {
        __builtin_prefetch(bytes + at);
    }
}

}  // namespace

Target Batch::at(std::size_t image) const {
    Target target = first;
    target.data += image * 3 * target.height * target.width * target.item_bytes;
    return target;
}

std::vector<Result> cut_pixels(const std::vector<Pixels> &images, const std::vector<Cut> &cuts,
                               const Batch &batch, unsigned threads) {
    return for_each_image(images.size(), threads, [&](std::size_t at, Scratch &scratch) {
        const Pixels &image = images[at];
        const Extent extent{image.height, image.width};
        const Window window = start_cut(cuts[at], extent, batch.at(at), scratch.resizer);
        const PixelRows rows = scratch.rows_for(window.width);
        const std::uint8_t *from = image.data + (window.top * image.width + window.left) * 3;
        for (std::size_t y = 0; y < window.height; y += rows_at_once) {
            const std::size_t count = std::min(rows_at_once, window.height - y);
            for (std::size_t i = 0; i < count; ++i, from += image.width * 3) {
                lines.widen(from, window.width, rows[i]);
                if (y + i + rows_at_once < window.height) {
                    call_for(from + rows_at_once * image.width * 3, window.width * 3);
                }
            }
            scratch.resizer.add_rows(rows.data(), count);
        }
        return Outcome::decoded;
    });
}

}  // namespace unstarve
