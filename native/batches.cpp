#include "batches.h"

#include <utility>

namespace unstarve {

void Cutter::carry_all() {
    carried_.insert(carried_.end(), chunk_, chunk_ + left_);
    left_ = 0;
}

void Cutter::add(const std::int64_t *chunk, std::size_t count) {
    carry_all();
    chunk_ = chunk;
    left_ = count;
}

Cut Cutter::cut() {
    const std::size_t missing = batch_size_ - carried_.size();
    const std::int64_t *const begin = chunk_;
    chunk_ += missing;
    left_ -= missing;
    if (carried_.empty()) {
        return {begin, missing};
    }
    carried_.insert(carried_.end(), begin, begin + missing);
    return Cut(std::exchange(carried_, {}));
}

Cut Cutter::last() {
    carry_all();
    std::vector<std::int64_t> rest = std::exchange(carried_, {});
    return drop_last_ ? Cut() : Cut(std::move(rest));
}

bool look_up(const std::int64_t *table, std::size_t count, Cut &indices) {
    std::vector<std::int64_t> found(indices.count);
    for (std::size_t i = 0; i < indices.count; ++i) {
        const std::int64_t at = indices.index[i];
        const std::size_t position = static_cast<std::size_t>(at) + (at < 0 ? count : 0);
        if (position >= count) {
            return false;
        }
        found[i] = table[position];
    }
    indices = Cut(std::move(found));
    return true;
}

}  // namespace unstarve
