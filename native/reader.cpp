#include "reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <thread>

#include "pool.h"

namespace unstarve {
namespace {

constexpr unsigned default_threads = 16;

// Closes what was opened for a read, and nothing that belongs to the caller.
class Opened {
  public:
    explicit Opened(const Read &read, int flags = 0)
        : fd_(read.path == nullptr ? read.fd : ::open(read.path, O_RDONLY | O_CLOEXEC | flags)),
          ours_(read.path != nullptr) {}
    ~Opened() {
        if (ours_ && fd_ >= 0) {
            ::close(fd_);
        }
    }
    Opened(const Opened &) = delete;
    Opened &operator=(const Opened &) = delete;
    int fd() const { return fd_; }

  private:
    int fd_;
    bool ours_;
};

bool as_expected(int fd, const Read &read) {
    if (read.size_bytes < 0 && read.mtime_ns < 0) {
        return true;
    }
    struct stat status {};
    if (::fstat(fd, &status) != 0) {
        return false;
    }
#ifdef __APPLE__
    const timespec changed = status.st_mtimespec;
#else
    const timespec changed = status.st_mtim;
#endif
    const std::int64_t mtime_ns = std::int64_t{changed.tv_sec} * 1'000'000'000 + changed.tv_nsec;
    return (read.size_bytes < 0 || status.st_size == read.size_bytes) &&
           (read.mtime_ns < 0 || mtime_ns == read.mtime_ns);
}

// Positions of the first read of each run of reads that share an open.
std::vector<std::size_t> runs_of(const std::vector<Read> &reads) {
    std::vector<std::size_t> starts;
    starts.reserve(reads.size() + 1);
    for (std::size_t i = 0; i < reads.size(); ++i) {
        if (i == 0 || reads[i].path == nullptr || reads[i].path != reads[i - 1].path) {
            starts.push_back(i);
        }
    }
    starts.push_back(reads.size());
    return starts;
}

class Failures {
  public:
    void add(std::size_t read, Trouble trouble, int error, std::uint64_t got) {
        const std::lock_guard<std::mutex> locked(mutex_);
        all_.push_back({read, trouble, error, got});
    }
    std::vector<Failure> sorted() {
        std::sort(all_.begin(), all_.end(), [](const Failure &a, const Failure &b) { return a.read < b.read; });
        return std::move(all_);
    }

  private:
    std::mutex mutex_;
    std::vector<Failure> all_;
};

void read_buffered(int fd, const Read &read, std::size_t at, Failures &failures) {
    std::uint64_t got = 0;
    while (got < read.length) {
        const ssize_t more =
            ::pread(fd, read.to + got, read.length - got, static_cast<off_t>(read.offset + got));
        if (more > 0) {
            got += static_cast<std::uint64_t>(more);
        } else if (more == 0) {
            failures.add(at, Trouble::ended, 0, got);
            return;
        } else if (errno != EINTR) {
            failures.add(at, Trouble::read, errno, got);
            return;
        }
    }
}

}  // namespace

Report read_all(const std::vector<Read> &reads, How how) {
    const std::vector<std::size_t> starts = runs_of(reads);
    const std::size_t run_count = starts.size() - 1;
    Failures failures;
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
        for (std::size_t run; (run = next.fetch_add(1, std::memory_order_relaxed)) < run_count;) {
            const Read &first = reads[starts[run]];
            const Opened file(first);
            const int error = file.fd() < 0 ? errno : 0;
            for (std::size_t i = starts[run]; i < starts[run + 1]; ++i) {
                if (error != 0) {
                    failures.add(i, Trouble::open, error, 0);
                } else if (!as_expected(file.fd(), reads[i])) {
                    failures.add(i, Trouble::changed, 0, 0);
                } else {
                    read_buffered(file.fd(), reads[i], i, failures);
                }
            }
        }
    };
    const std::size_t threads = how.threads == 0 ? default_threads : how.threads;
    run_on_pool(static_cast<unsigned>(std::min(threads, std::max<std::size_t>(run_count, 1))), work);
    Report report;
    report.failures = failures.sorted();
    return report;
}

}  // namespace unstarve
