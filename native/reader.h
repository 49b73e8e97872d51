// Stretches of many files → memory, many at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace unstarve {

// One stretch of one file and where its bytes go. Neighbours with the same `path` pointer share one open and
// the first one's expectations.
struct Read {
    const char *path;  // opened for this read; nullptr: `fd`, which stays open, is read
    int fd;
    std::uint64_t offset;
    std::uint64_t length;
    std::byte *to;
    std::int64_t size_bytes;  // what the file must measure; -1: anything
    std::int64_t mtime_ns;    // when it must have been written last; -1: any time
};

enum class Trouble : std::uint8_t {
    open,     // the file could not be opened: `error`, or it is not a regular one: not_regular
    read,     // the kernel refused to read it: `error`
    ended,    // the file ended after `got` of the bytes asked for
    changed,  // the file is not of the size or time expected
};

struct Failure {
    std::size_t read;  // position of the Read
    Trouble trouble;
    int error;  // errno, or 0
    std::uint64_t got;
};

struct How {
    bool direct = false;   // past the page cache, with aligned bounce buffers where the destination is not
    unsigned depth = 0;    // direct reads in flight, shared by callers; 0 chooses
    unsigned threads = 0;  // most threads to use, the caller's included; 0 chooses
    bool uring = true;     // false: threads that wait, even where the kernel has a queue
};

// What was done, beside the failures.
struct Report {
    std::vector<Failure> failures;  // in the order of the reads
    std::uint64_t direct_bytes = 0;
    bool direct_refused = false;  // by a file system that has no O_DIRECT: its files were read through the cache
    bool used_uring = false;
};

// Reads all of them, whatever fails: one bad file loses nothing of the others. What a failed read leaves in its
// memory is unspecified. Throws nothing but std::bad_alloc.
Report read_all(const std::vector<Read> &reads, How how);

}  // namespace unstarve
