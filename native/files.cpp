#include "files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace unstarve {

std::vector<Run> runs_of(const std::vector<Read> &reads) {
    std::vector<Run> runs;
    runs.reserve(reads.size());
    for (std::size_t i = 0; i < reads.size(); ++i) {
        if (i != 0 && reads[i].path != nullptr && reads[i].path == reads[i - 1].path) {
            runs.back().end = i + 1;
        } else {
            runs.push_back({i, i + 1});
        }
    }
    return runs;
}

void Failures::add(std::size_t read, Trouble trouble, int error, std::uint64_t got) {
    const std::lock_guard<std::mutex> locked(mutex_);
    all_.push_back({read, trouble, error, got});
}

void Failures::add(const Run &run, Trouble trouble, int error) {
    for (std::size_t read = run.first; read < run.end; ++read) {
        add(read, trouble, error, 0);
    }
}

std::vector<Failure> Failures::in_order() {
    const std::lock_guard<std::mutex> locked(mutex_);
    std::sort(all_.begin(), all_.end(), [](const Failure &a, const Failure &b) {
        return a.read != b.read ? a.read < b.read : a.got < b.got;
    });
    all_.erase(std::unique(all_.begin(), all_.end(),
                           [](const Failure &a, const Failure &b) { return a.read == b.read; }),
               all_.end());
    return all_;
}

namespace {

// Negative: not_regular or errno, negated.
int open_regular(const char *path, int flags, Patience patience, struct stat &status) {
    const int wanted = O_RDONLY | O_CLOEXEC | flags;
    int fd = ::open(path, wanted | O_NONBLOCK);
    if (fd < 0 && errno == EWOULDBLOCK) {  // a regular file, which another program has a lease on and must give up
        fd = ::open(path, wanted);
    }
    if (fd < 0) {
        return -errno;
    }
    int error = 0;
    if (::fstat(fd, &status) != 0) {
        error = errno;
    } else if (!S_ISREG(status.st_mode)) {
        error = S_ISDIR(status.st_mode) ? EISDIR : not_regular;
    } else if (patience == Patience::any && ::fcntl(fd, F_SETFL, flags) != 0) {  // io_uring would not wait for storage
        error = errno;
    }
    if (error != 0) {
        ::close(fd);
        return -error;
    }
    return fd;
}

std::int64_t mtime_ns_of(const struct stat &status) {
#ifdef __APPLE__
    const timespec written = status.st_mtimespec;
#else
    const timespec written = status.st_mtim;
#endif
    return std::int64_t{written.tv_sec} * 1'000'000'000 + written.tv_nsec;
}

}  // namespace

ssize_t read_some(int fd, void *to, std::uint64_t length, std::uint64_t offset, Patience patience) {
#ifdef RWF_NOWAIT
    if (patience == Patience::none) {
        const iovec part{to, length};
        return ::preadv2(fd, &part, 1, static_cast<off_t>(offset), RWF_NOWAIT);
    }
#else
    if (patience == Patience::none) {
        errno = EAGAIN;
        return -1;
    }
#endif
    return ::pread(fd, to, length, static_cast<off_t>(offset));
}

Opened::Opened(const Read &read, int flags, Patience patience)
    : fd_(read.path == nullptr ? read.fd : open_regular(read.path, flags, patience, status_)),
      ours_(read.path != nullptr) {
    if (fd_ < 0) {
        error_ = ours_ ? -fd_ : EBADF;
        fd_ = -1;
    }
}

Opened::~Opened() {
    if (ours_ && fd_ >= 0) {
        ::close(fd_);
    }
}

std::int64_t Opened::mtime_ns() const { return mtime_ns_of(status_); }

bool Opened::is_as_expected(const Read &read) const {
    if (read.size_bytes == -1 && read.mtime_ns < 0) {
        return true;
    }
    struct stat status = status_;
    if (!ours_ && ::fstat(fd_, &status) != 0) {
        return true;  // reading it will say why
    }
    return (read.size_bytes == -1 || status.st_size == read.size_bytes) &&
           (read.mtime_ns < 0 || mtime_ns_of(status) == read.mtime_ns);
}

}  // namespace unstarve
