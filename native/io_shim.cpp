// `unstarve run --io` preloads this library: it counts how a process reads its files.
//
// It wraps the C library's calls for opening, reading, seeking, mapping and closing, and measures those on files
// that may be data. It never changes a result, an error or `errno`, allocates nothing and starts no thread. The
// counts are written to a file of the process at its first call, about every quarter of a second, and at its end.
#undef _FORTIFY_SOURCE      // its inline wrappers would be defined twice
#undef _FILE_OFFSET_BITS    // open and open64 are two names here
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <dlfcn.h>
#include <sys/uio.h>

#include <cstdarg>
#include <cstring>

#include "io_counts.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
// The function that would have been called without this library; found once.
#define REAL(name) real<decltype(&::name)>(real_##name, #name)
#define DECLARE_REAL(name) std::atomic<void *> real_##name

namespace {

template <typename Function>
Function real(std::atomic<void *> &known, const char *name) {
    void *found = known.load(std::memory_order_relaxed);
    if (__builtin_expect(found == nullptr, 0)) {
        const int error = errno;
        found = dlsym(RTLD_NEXT, name);
        if (found == nullptr) abort();  // the caller was linked with a function that is not there
        known.store(found, std::memory_order_relaxed);
        errno = error;
    }
    return reinterpret_cast<Function>(found);
}

bool has_mode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

int mode_flags(const char *mode) {
    const bool both = std::strchr(mode, '+') != nullptr;
    return both ? O_RDWR : mode[0] == 'r' ? O_RDONLY : O_WRONLY;
}

}  // namespace

#define MODE_OF(flags)                                    \
    mode_t mode = 0;                                      \
    if (has_mode(flags)) {                                \
        va_list rest;                                     \
        va_start(rest, flags);                            \
        mode = static_cast<mode_t>(va_arg(rest, unsigned)); \
        va_end(rest);                                     \
    }

#define WRAP_OPEN(name)                                                 \
    DECLARE_REAL(name);                                                 \
    EXPORT int name(const char *path, int flags, ...) {                 \
        MODE_OF(flags)                                                  \
        const std::uint64_t began_ns = now_ns();                        \
        const int fd = REAL(name)(path, flags, mode);                   \
        opened(fd, AT_FDCWD, path, flags, began_ns);                    \
        return fd;                                                      \
    }

#define WRAP_OPENAT(name)                                               \
    DECLARE_REAL(name);                                                 \
    EXPORT int name(int folder, const char *path, int flags, ...) {     \
        MODE_OF(flags)                                                  \
        const std::uint64_t began_ns = now_ns();                        \
        const int fd = REAL(name)(folder, path, flags, mode);           \
        opened(fd, folder, path, flags, began_ns);                      \
        return fd;                                                      \
    }

WRAP_OPEN(open)
WRAP_OPEN(open64)
WRAP_OPENAT(openat)
WRAP_OPENAT(openat64)

// What programs call that were compiled with checks of their buffers' sizes.
extern "C" {
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);
ssize_t __read_chk(int, void *, std::size_t, std::size_t);
ssize_t __pread_chk(int, void *, std::size_t, off_t, std::size_t);
ssize_t __pread64_chk(int, void *, std::size_t, off64_t, std::size_t);
std::size_t __fread_chk(void *, std::size_t, std::size_t, std::size_t, FILE *);
}

#define WRAP_OPEN_2(name)                                          \
    DECLARE_REAL(name);                                                 \
    EXPORT int name(const char *path, int flags) {                      \
        const std::uint64_t began_ns = now_ns();                        \
        const int fd = REAL(name)(path, flags);                         \
        opened(fd, AT_FDCWD, path, flags, began_ns);                    \
        return fd;                                                      \
    }

#define WRAP_OPENAT_2(name)                                             \
    DECLARE_REAL(name);                                                 \
    EXPORT int name(int folder, const char *path, int flags) {          \
        const std::uint64_t began_ns = now_ns();                        \
        const int fd = REAL(name)(folder, path, flags);                 \
        opened(fd, folder, path, flags, began_ns);                      \
        return fd;                                                      \
    }

WRAP_OPEN_2(__open_2)
WRAP_OPEN_2(__open64_2)
WRAP_OPENAT_2(__openat_2)
WRAP_OPENAT_2(__openat64_2)

#define WRAP_FOPEN(name)                                                              \
    DECLARE_REAL(name);                                                               \
    EXPORT FILE *name(const char *path, const char *mode) {                           \
        const std::uint64_t began_ns = now_ns();                                      \
        FILE *file = REAL(name)(path, mode);                                          \
        if (file != nullptr) opened(fd_of(file), AT_FDCWD, path, mode_flags(mode), began_ns); \
        return file;                                                                  \
    }

WRAP_FOPEN(fopen)
WRAP_FOPEN(fopen64)

DECLARE_REAL(close);
EXPORT int close(int fd) {
    forget(fd);
    return REAL(close)(fd);
}

DECLARE_REAL(fclose);
EXPORT int fclose(FILE *file) {
    if (file != nullptr) forget(fd_of(file));
    return REAL(fclose)(file);
}

DECLARE_REAL(read);
EXPORT ssize_t read(int fd, void *out, std::size_t size) {
    return timed_read(fd, -1, [&] { return REAL(read)(fd, out, size); });
}

DECLARE_REAL(__read_chk);
EXPORT ssize_t __read_chk(int fd, void *out, std::size_t size, std::size_t room) {
    return timed_read(fd, -1, [&] { return REAL(__read_chk)(fd, out, size, room); });
}

DECLARE_REAL(readv);
EXPORT ssize_t readv(int fd, const iovec *out, int count) {
    return timed_read(fd, -1, [&] { return REAL(readv)(fd, out, count); });
}

#define WRAP_PREAD(name, offset_type)                                                         \
    DECLARE_REAL(name);                                                                       \
    EXPORT ssize_t name(int fd, void *out, std::size_t size, offset_type at) {                \
        return timed_read(fd, at, [&] { return REAL(name)(fd, out, size, at); });             \
    }

WRAP_PREAD(pread, off_t)
WRAP_PREAD(pread64, off64_t)

#define WRAP_PREAD_CHK(name, offset_type)                                                     \
    DECLARE_REAL(name);                                                                       \
    EXPORT ssize_t name(int fd, void *out, std::size_t size, offset_type at, std::size_t room) { \
        return timed_read(fd, at, [&] { return REAL(name)(fd, out, size, at, room); });       \
    }

WRAP_PREAD_CHK(__pread_chk, off_t)
WRAP_PREAD_CHK(__pread64_chk, off64_t)

#define WRAP_PREADV(name, offset_type)                                                        \
    DECLARE_REAL(name);                                                                       \
    EXPORT ssize_t name(int fd, const iovec *out, int count, offset_type at) {                \
        return timed_read(fd, at, [&] { return REAL(name)(fd, out, count, at); });            \
    }

WRAP_PREADV(preadv, off_t)
WRAP_PREADV(preadv64, off64_t)

#define WRAP_PREADV2(name, offset_type)                                                       \
    DECLARE_REAL(name);                                                                       \
    EXPORT ssize_t name(int fd, const iovec *out, int count, offset_type at, int flags) {     \
        return timed_read(fd, at, [&] { return REAL(name)(fd, out, count, at, flags); });     \
    }

WRAP_PREADV2(preadv2, off_t)
WRAP_PREADV2(preadv64v2, off64_t)

// A stream that reads ahead is counted by the bytes that its reader takes.
DECLARE_REAL(fread);
EXPORT std::size_t fread(void *out, std::size_t size, std::size_t count, FILE *file) {
    const auto call = [&] { return static_cast<long>(REAL(fread)(out, size, count, file) * size); };
    const long got = timed_read(fd_of(file), -1, call);
    return size == 0 ? 0 : static_cast<std::size_t>(got) / size;
}

DECLARE_REAL(__fread_chk);
EXPORT std::size_t __fread_chk(void *out, std::size_t room, std::size_t size, std::size_t count, FILE *file) {
    const auto call = [&] { return static_cast<long>(REAL(__fread_chk)(out, room, size, count, file) * size); };
    const long got = timed_read(fd_of(file), -1, call);
    return size == 0 ? 0 : static_cast<std::size_t>(got) / size;
}

#define WRAP_LSEEK(name, offset_type)                                          \
    DECLARE_REAL(name);                                                        \
    EXPORT offset_type name(int fd, offset_type offset, int whence) noexcept { \
        const offset_type now = REAL(name)(fd, offset, whence);                \
        has_moved(fd, now);                                                    \
        return now;                                                            \
    }

WRAP_LSEEK(lseek, off_t)
WRAP_LSEEK(lseek64, off64_t)

// Memory allocators call it before dlsym can work.
#ifdef __LP64__
#define MAP(name, ...) reinterpret_cast<void *>(syscall(SYS_mmap, __VA_ARGS__))
#else
#define MAP(name, ...) REAL(name)(__VA_ARGS__)
#endif

#define WRAP_MMAP(name, offset_type)                                                                  \
    DECLARE_REAL(name);                                                                               \
    EXPORT void *name(void *wish, std::size_t size, int access, int flags, int fd, offset_type at) noexcept { \
        void *mapped = MAP(name, wish, size, access, flags, fd, at);                                  \
        has_mapped(fd, mapped, size);                                                                 \
        return mapped;                                                                                \
    }

WRAP_MMAP(mmap, off_t)
WRAP_MMAP(mmap64, off64_t)

DECLARE_REAL(dup);
EXPORT int dup(int fd) noexcept {
    const int copy = REAL(dup)(fd);
    copied(fd, copy);
    return copy;
}

DECLARE_REAL(dup2);
EXPORT int dup2(int fd, int wish) noexcept {
    const int copy = REAL(dup2)(fd, wish);
    copied(fd, copy);
    return copy;
}

DECLARE_REAL(dup3);
EXPORT int dup3(int fd, int wish, int flags) noexcept {
    const int copy = REAL(dup3)(fd, wish, flags);
    copied(fd, copy);
    return copy;
}

#define WRAP_FCNTL(name)                                                        \
    DECLARE_REAL(name);                                                         \
    EXPORT int name(int fd, int command, ...) {                                 \
        va_list rest;                                                           \
        va_start(rest, command);                                                \
        void *argument = va_arg(rest, void *); /* whatever it is, it fits */    \
        va_end(rest);                                                           \
        const int done = REAL(name)(fd, command, argument);                     \
        if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) copied(fd, done); \
        return done;                                                            \
    }

WRAP_FCNTL(fcntl)
WRAP_FCNTL(fcntl64)

// A forked worker of multiprocessing ends here, without destructors.
DECLARE_REAL(_exit);
EXPORT void _exit(int status) {
    write_counts();
    REAL(_exit)(status);
    __builtin_unreachable();
}

DECLARE_REAL(_Exit);
EXPORT void _Exit(int status) noexcept {
    write_counts();
    REAL(_Exit)(status);
    __builtin_unreachable();
}
