// What buffered and direct reads share: runs of reads, open files, failures.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <mutex>
#include <vector>

#include "reader.h"

namespace unstarve {

// Neighbours with the same path pointer; every read of a descriptor is a run of its own.
std::vector<Run> runs_of(const std::vector<Read> &reads);

// Collects failures from several threads.
class Failures {
  public:
    void add(std::size_t read, Trouble trouble, int error, std::uint64_t got);
    void add(const Run &run, Trouble trouble, int error);

    // One per read, the one that came first in the file.
    std::vector<Failure> in_order();

  private:
    std::mutex mutex_;
    std::vector<Failure> all_;
};

// In the place of errno: the name means a FIFO, a socket or a device. Opening a file never fails with it.
constexpr int not_regular = ESPIPE;

// Like pread; without patience it fails where it would have to wait.
ssize_t read_some(int fd, void *to, std::uint64_t length, std::uint64_t offset, Patience patience);

// An open file of a run. Closes what it opened, and nothing that belongs to the caller.
//
// Only regular files are opened by name, and nobody is waited for: opening a FIFO would take until somebody writes.
// Without patience reads of the file must not wait either, so that it stays as it was opened.
class Opened {
  public:
    Opened(const Read &read, int flags, Patience patience);
    ~Opened();
    Opened(const Opened &) = delete;
    Opened &operator=(const Opened &) = delete;

    int fd() const { return fd_; }  // -1: could not be opened
    int error() const { return error_; }  // errno, EISDIR for a folder, or not_regular

    // Of a file that was opened by name.
    std::int64_t size_bytes() const { return status_.st_size; }
    std::int64_t mtime_ns() const;

    // Whether the file has the size and time that the read expects.
    bool is_as_expected(const Read &read) const;

  private:
    struct stat status_ {};  // as it was opened, which comes next
    int fd_;
    int error_ = 0;
    bool ours_;
};

}  // namespace unstarve
