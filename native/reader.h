// Read byte ranges of many files into memory, many at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace unstarve {

// One range of one file and where its bytes go. Consecutive reads with the same `path` pointer share one open
// file, and the expected size and time of the first.
struct Read {
    const char *path;  // opened for this read; nullptr: read `fd`, which stays open
    int fd;
    std::uint64_t offset;
    std::uint64_t length;
    std::byte *to;
    std::int64_t size_bytes;  // the size that the file must have; -1: any
    std::int64_t mtime_ns;    // the modification time that it must have; -1: any
};

enum class Trouble : std::uint8_t {
    open,     // the file could not be opened: `error`, or not_regular
    read,     // the kernel refused to read it: `error`
    ended,    // the file ended after `got` bytes
    changed,  // the file does not have the expected size or time
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
    bool uring = true;     // false: blocking threads, even if the kernel has io_uring
};

// How the files were read, and the failures.
struct Report {
    std::vector<Failure> failures;  // in the order of the reads
    std::uint64_t direct_bytes = 0;
    bool direct_refused = false;  // by a file system that has no O_DIRECT: its files were read through the cache
    bool used_uring = false;
};

// Reads everything: a failed read does not stop the others. The memory of a failed read is undefined
// afterwards. Throws nothing but std::bad_alloc.
Report read_all(const std::vector<Read> &reads, How how);

}  // namespace unstarve
