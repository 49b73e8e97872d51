// Indices as a sampler gives them → the indices of one batch after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace unstarve {

// Indices of one batch. They lie in `own`, or where `own` is empty in the chunk they were cut from.
struct Cut {
    const std::int64_t *index = nullptr;
    std::size_t count = 0;
    std::vector<std::int64_t> own;

    Cut() = default;
    Cut(Cut &&) = default;
    Cut &operator=(Cut &&) = default;
    explicit Cut(std::vector<std::int64_t> indices)
        : index(indices.data()), count(indices.size()), own(std::move(indices)) {}
    Cut(const std::int64_t *chunk, std::size_t size) : index(chunk), count(size) {}
};

// Cuts a stream of chunks into batches, as torch's BatchSampler cuts a stream of single indices. No chunk is
// asked for before a batch needs it: drawing one may advance a random generator that others use too.
class Cutter {
  public:
    Cutter(std::size_t batch_size, bool drop_last) : batch_size_(batch_size), drop_last_(drop_last) {}

    // Whether a whole batch can be cut without another chunk.
    bool has_batch() const { return carried_.size() + left_ >= batch_size_; }

    // Another chunk, for when there is no whole batch. It is not copied: it must stay as it is until the next
    // call of add() or last().
    void add(const std::int64_t *chunk, std::size_t count);

    // The next batch; only when there is one.
    Cut cut();

    // After the last chunk: what is left for a last, shorter batch. Empty where that is to be dropped.
    Cut last();

  private:
    void carry_all();

    std::size_t batch_size_;
    bool drop_last_;
    const std::int64_t *chunk_ = nullptr;
    std::size_t left_ = 0;               // indices of the chunk that are not cut yet
    std::vector<std::int64_t> carried_;  // before them: the end of earlier chunks
};

// Replaces each index by what `table` holds at it; a negative one counts from the end. False, and nothing is
// replaced, where one lies outside.
bool look_up(const std::int64_t *table, std::size_t count, Cut &indices);

}  // namespace unstarve
