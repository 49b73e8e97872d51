#include "cutting.h"

#include <algorithm>
#include <new>
#include <string>

#include "crew.h"

namespace unstarve {
namespace {

// A thread keeps no more than this between images: a rare giant must not cost every thread its memory for good.
constexpr std::size_t max_kept_bytes = std::size_t{8} << 20;

Result result_of(const std::function<Outcome(std::size_t, Scratch &)> &work, std::size_t at, Scratch &scratch) {
    try {
        return {work(at, scratch), {}};
    } catch (const ImageError &error) {
        return {Outcome::failed, error.what()};
    } catch (const std::bad_alloc &) {
        return {Outcome::failed, no_memory};
    }
}

bool within(std::int64_t first, std::int64_t count, std::size_t all) {
    const auto end = static_cast<std::int64_t>(all);
    return first >= 0 && count >= 1 && first < end && count <= end - first;
}

// The window that a cut's box means. Throws ImageError where it is not within the image.
Window window_of(const Cut &cut, Extent image) {
    if (cut.whole) {
        return {0, 0, image.height, image.width};
    }
    if (!within(cut.top, cut.height, image.height) || !within(cut.left, cut.width, image.width)) {
        throw ImageError("the box of " + std::to_string(cut.height) + "×" + std::to_string(cut.width) +
                           " pixels at row " + std::to_string(cut.top) + ", column " + std::to_string(cut.left) +
                           " is not within the image of " + std::to_string(image.height) + "×" +
                           std::to_string(image.width));
    }
    return {static_cast<std::size_t>(cut.top), static_cast<std::size_t>(cut.left),
            static_cast<std::size_t>(cut.height), static_cast<std::size_t>(cut.width)};
}

}  // namespace

std::size_t Scratch::kept_bytes() const {
    return block.capacity() + rows.capacity() + baseline.kept_bytes() + resizer.kept_bytes();
}

PixelRows Scratch::rows_for(std::size_t pixels) {
    const std::size_t row_bytes = (pixels + resizer.slack_pixels()) * 4;
    rows.resize(std::max(rows.size(), row_bytes * rows_at_once));
    PixelRows all;
    for (std::size_t i = 0; i < rows_at_once; ++i) {
        all[i] = rows.data() + i * row_bytes;
    }
    return all;
}

Window start_cut(const Cut &cut, Extent image, const Target &target, Resizer &resizer) {
    const Window box = window_of(cut, image);
    const Resized resized = cut.resized.size.height != 0 ? cut.resized : Resized{{target.height, target.width}};
    const Window needed = resizer.start({box.height, box.width}, resized, cut.flip, target);
    return {box.top + needed.top, box.left + needed.left, needed.height, needed.width};
}

std::vector<Result> for_each_image(std::size_t count, unsigned threads,
                                     const std::function<Outcome(std::size_t, Scratch &)> &work) {
    std::vector<Result> results(count);
    run_in_order(threads, count, [&](std::size_t at) {
        thread_local Scratch scratch;
        results[at] = result_of(work, at, scratch);
        if (scratch.kept_bytes() > max_kept_bytes) {
            scratch = Scratch();
        }
    });
    return results;
}

}  // namespace unstarve
