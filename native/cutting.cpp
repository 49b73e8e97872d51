#include "cutting.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <string>

#include "pool.h"

namespace unstarve {
namespace {

// A thread keeps no more than this between batches: a rare giant must not cost every thread its memory for good.
constexpr std::size_t max_kept_bytes = std::size_t{8} << 20;

Result result_of(const std::function<Outcome(std::size_t, Scratch &)> &work, std::size_t at, Scratch &scratch) {
    try {
        return {work(at, scratch), {}};
    } catch (const PictureError &error) {
        return {Outcome::failed, error.what()};
    } catch (const std::bad_alloc &) {
        return {Outcome::failed, "there is not enough memory to decode it"};
    }
}

bool within(std::int64_t first, std::int64_t count, std::size_t all) {
    const auto end = static_cast<std::int64_t>(all);
    return first >= 0 && count >= 1 && first < end && count <= end - first;
}

}  // namespace

PixelRows Scratch::rows_for(std::size_t pixels) {
    const std::size_t row_bytes = (pixels + resizer.slack_pixels()) * 4;
    rows.resize(std::max(rows.size(), row_bytes * rows_at_once));
    PixelRows all;
    for (std::size_t i = 0; i < rows_at_once; ++i) {
        all[i] = rows.data() + i * row_bytes;
    }
    return all;
}

Window window_of(const Cut &cut, Extent picture) {
    if (cut.whole) {
        return {0, 0, picture.height, picture.width};
    }
    if (!within(cut.top, cut.height, picture.height) || !within(cut.left, cut.width, picture.width)) {
        throw PictureError("the box of " + std::to_string(cut.height) + "×" + std::to_string(cut.width) +
                           " pixels at row " + std::to_string(cut.top) + ", column " + std::to_string(cut.left) +
                           " is not within the picture of " + std::to_string(picture.height) + "×" +
                           std::to_string(picture.width));
    }
    return {static_cast<std::size_t>(cut.top), static_cast<std::size_t>(cut.left),
            static_cast<std::size_t>(cut.height), static_cast<std::size_t>(cut.width)};
}

std::vector<Result> for_each_picture(std::size_t count, unsigned threads,
                                     const std::function<Outcome(std::size_t, Scratch &)> &work) {
    std::vector<Result> results(count);
    std::atomic<std::size_t> next{0};
    const auto take_pictures = [&] {
        thread_local Scratch scratch;
        for (std::size_t at; (at = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
            results[at] = result_of(work, at, scratch);
        }
        if (scratch.block.capacity() + scratch.rows.capacity() + scratch.baseline.kept_bytes() > max_kept_bytes) {
            scratch = Scratch();
        }
    };
    run_on_pool(static_cast<unsigned>(std::clamp<std::size_t>(count, 1, std::max(threads, 1u))), take_pictures);
    return results;
}

}  // namespace unstarve
