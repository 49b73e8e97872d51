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
    std::int64_t size_bytes;  // the size that the file must have; -1: any; not_looked_into
    std::int64_t mtime_ns;    // the modification time that it must have; -1: any
};

// The size of a file of which it is not known where its bytes are: its reads need a Finder.
constexpr std::int64_t not_looked_into = -2;

enum class Trouble : std::uint8_t {
    open,     // the file could not be opened: `error`, or not_regular
    read,     // the kernel refused to read it: `error`
    ended,    // the file ended after `got` bytes
    changed,  // the file does not have the expected size or time
    other,    // the Finder found something else, or could not open the file to look into it
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

// Bytes that are in memory already are worth copying at once; waiting for the others is left to more threads.
// The attempt makes the kernel start to fetch them.
enum class Patience { none, any };

// Reads that share one open: positions first … end-1.
struct Run {
    std::size_t first;
    std::size_t end;
};

class Opened;

// Looks into files that nobody has looked into, and into those that have changed since.
class Finder {
  public:
    virtual ~Finder() = default;

    enum class Seen { found, waits, other };

    // Fills in where the bytes of a run are, and the size and time of its file. Called by several threads, for
    // different runs.
    virtual Seen look(const Opened &file, Patience patience, std::vector<Read> &reads, const Run &run) = 0;
};

// Reads everything: a failed read does not stop the others. The memory of a failed read is undefined
// afterwards. Throws nothing but std::bad_alloc. With a Finder files are read through the page cache.
Report read_all(std::vector<Read> reads, How how, Finder *finder = nullptr);

}  // namespace unstarve
