#include <numeric>
#include <vector>

#include "batches.h"
#include "check.h"

namespace {

using Indices = std::vector<std::int64_t>;

// All indices from 0 on, handed over in chunks of these sizes.
std::vector<Indices> chunks_of(const std::vector<std::size_t> &sizes) {
    std::vector<Indices> chunks;
    std::int64_t next = 0;
    for (const std::size_t size : sizes) {
        chunks.emplace_back(size);
        std::iota(chunks.back().begin(), chunks.back().end(), next);
        next += static_cast<std::int64_t>(size);
    }
    return chunks;
}

std::vector<Indices> cut_all(const std::vector<Indices> &chunks, std::size_t batch_size, bool drop_last) {
    unstarve::Cutter cutter(batch_size, drop_last);
    std::vector<Indices> batches;
    const auto keep = [&batches](const unstarve::Cut &cut) {
        batches.emplace_back(cut.index, cut.index + cut.count);
    };
    for (const Indices &chunk : chunks) {
        cutter.add(chunk.data(), chunk.size());
        while (cutter.has_batch()) {
            keep(cutter.cut());
        }
    }
    const unstarve::Cut rest = cutter.last();
    if (rest.count != 0) {
        keep(rest);
    }
    CHECK(cutter.last().count == 0);
    return batches;
}

void batches_do_not_depend_on_the_chunks() {
    const std::vector<std::vector<std::size_t>> splits = {{10}, {3, 7}, {1, 1, 1, 7}, {0, 10, 0}, {9, 1}, {4, 4, 2}};
    for (const auto &sizes : splits) {
        const std::vector<Indices> kept = {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}};
        CHECK(cut_all(chunks_of(sizes), 4, false) == kept);
        const std::vector<Indices> dropped = {{0, 1, 2, 3}, {4, 5, 6, 7}};
        CHECK(cut_all(chunks_of(sizes), 4, true) == dropped);
        CHECK(cut_all(chunks_of(sizes), 10, true).size() == 1);
        CHECK(cut_all(chunks_of(sizes), 11, true).empty());
        CHECK(cut_all(chunks_of(sizes), 1, false).size() == 10);
    }
    CHECK(cut_all({}, 3, false).empty());
}

void a_batch_inside_one_chunk_is_not_copied() {
    const Indices chunk = {5, 6, 7, 8};
    unstarve::Cutter cutter(2, false);
    cutter.add(chunk.data(), chunk.size());
    CHECK(cutter.cut().index == chunk.data());
    CHECK(cutter.cut().index == chunk.data() + 2);
    CHECK(!cutter.has_batch());
}

void indices_are_looked_up_or_left_alone() {
    const Indices table = {10, 11, 12};
    unstarve::Cut indices(Indices{2, -3, 0, -1});
    CHECK(unstarve::look_up(table.data(), table.size(), indices));
    CHECK((indices.own == Indices{12, 10, 10, 12}));
    for (const std::int64_t bad : {std::int64_t{3}, std::int64_t{-4}, INT64_MAX, INT64_MIN}) {
        unstarve::Cut outside(Indices{0, bad});
        CHECK(!unstarve::look_up(table.data(), table.size(), outside));
        CHECK((outside.own == Indices{0, bad}));
    }
}

}  // namespace

int main() {
    batches_do_not_depend_on_the_chunks();
    a_batch_inside_one_chunk_is_not_copied();
    indices_are_looked_up_or_left_alone();
}
