// Rows of events on their way to the run file: packed as they come, taken out now and then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace unstarve {

// The rows of one process, for all its threads, and what its hot paths ask of the recording.
class Ledger {
public:
    void append(int kind, const char *row, std::size_t size);

    // What was appended since the last time, by kind.
    std::vector<std::pair<int, std::string>> take();

    // The following are guarded by the interpreter's lock.

    // Whether anything is to be recorded, now and here.
    bool active = true;
    // Whether a batch takes more than being timed: limits to look at, batches to replay.
    bool special = true;
    // Whether there may be an accelerator whose side of a wait is to be timed, too.
    bool has_device = false;
    // unstarve's own time since the last recorded batch.
    std::int64_t own_ns = 0;
    // When the rows are to be written at the latest.
    std::int64_t next_flush_ns = 0;

private:
    std::map<int, std::string> rows_;
    std::mutex mutex_;
};

// The fields of one kind of row, little-endian and without gaps: "HHIq" as Python's struct module reads it.
class Layout {
public:
    // std::invalid_argument for a letter other than H, I, i, q, Q.
    Layout(int kind, const std::string &letters);

    std::size_t fields() const { return letters_.size(); }

    // False, and nothing is appended, when a value does not fit its field.
    bool append(const std::int64_t *values, Ledger &ledger) const;

private:
    int kind_;
    std::string letters_;
};

}  // namespace unstarve
