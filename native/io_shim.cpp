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
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "io_table.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
// The function that would have been called without this library; found once.
#define REAL(name) real<decltype(&::name)>(real_##name, #name)
#define DECLARE_REAL(name) std::atomic<void *> real_##name

namespace {

using unstarve::add;
using unstarve::FileEntry;

constexpr std::uint32_t kEntries = 4096;
constexpr std::uint32_t kText = 1 << 19;
constexpr int kMostFds = 1 << 16;
constexpr std::uint64_t kWriteEvery_ns = 250'000'000;
// The page cache answers a read within this time, plus a nanosecond for every byte.
constexpr std::uint64_t kSlow_ns = 100'000;

struct OpenFile {
    std::atomic<std::uint32_t> entry;  // 0: not counted
    std::atomic<std::int64_t> position;
};

unstarve::FileTable<kEntries, kText> table;
OpenFile files[kMostFds];
std::atomic<std::uint64_t> next_write_ns;
std::atomic<bool> writing;
std::atomic<bool> enabled;
pid_t process;
bool is_python;
char counts_path[PATH_MAX];

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

std::uint64_t now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

void name_counts() {
    process = static_cast<pid_t>(syscall(SYS_getpid));
    const char *folder = getenv("UNSTARVE_IO");
    const auto moment = static_cast<unsigned long long>(now_ns());
    const int size = folder == nullptr ? 0
        : std::snprintf(counts_path, sizeof counts_path, "%s/%d-%llu.io", folder, static_cast<int>(process), moment);
    enabled = size > 0 && static_cast<std::size_t>(size) < sizeof counts_path;
}

// A child of vfork shares our memory until it becomes another program: its descriptors are not ours.
bool in_own_process() { return static_cast<pid_t>(syscall(SYS_getpid)) == process; }

// The file is opened anew each time: a program may close descriptors that it does not know.
void write_counts() {
    if (!enabled || table.entries() == 0 || writing.exchange(true, std::memory_order_acquire)) return;
    const int error = errno;
    if (in_own_process()) {
        const long fd = syscall(SYS_openat, AT_FDCWD, counts_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd >= 0) {
            const auto put = [fd](const void *memory, std::size_t size, std::uint32_t at) {
                [[maybe_unused]] const long written = syscall(SYS_pwrite64, fd, memory, size, static_cast<off64_t>(at));
            };
            table.write(static_cast<std::uint32_t>(process), is_python, put);
            syscall(SYS_close, fd);
        }
    }
    writing.store(false, std::memory_order_release);
    errno = error;
}

void write_if_due(std::uint64_t now) {
    std::uint64_t due = next_write_ns.load(std::memory_order_relaxed);
    if (now >= due && next_write_ns.compare_exchange_strong(due, now + kWriteEvery_ns, std::memory_order_relaxed)) {
        write_counts();
    }
}

void begin_in_child() {
    writing = false;
    table.zero();
    name_counts();
    next_write_ns = 0;
}

__attribute__((constructor)) void begin() {
    is_python = dlsym(RTLD_DEFAULT, "Py_IsInitialized") != nullptr;
    name_counts();
    if (enabled) pthread_atfork(nullptr, nullptr, begin_in_child);
}

__attribute__((destructor)) void end() { write_counts(); }

OpenFile *counted(int fd) {
    if (fd < 0 || fd >= kMostFds) return nullptr;
    OpenFile &file = files[fd];
    return file.entry.load(std::memory_order_relaxed) == 0 ? nullptr : &file;
}

// Directories, pipes and devices hold no data.
bool is_regular(int fd) {
    struct stat about{};
    return syscall(SYS_fstat, fd, &about) == 0 && S_ISREG(about.st_mode);
}

void forget(int fd) {
    OpenFile *file = counted(fd);
    if (file != nullptr && in_own_process()) file->entry.store(0, std::memory_order_relaxed);
}

// The path from the root, in `out`; its size, 0 when it is not known.
std::size_t absolute(int folder, const char *path, char (&out)[PATH_MAX]) {
    std::size_t used = 0;
    if (path[0] != '/') {
        long size = 0;
        if (folder == AT_FDCWD) {
            size = syscall(SYS_getcwd, out, sizeof out) - 1;
        } else {
            char link[32];
            std::snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
            size = readlink(link, out, sizeof out - 1);
        }
        if (size <= 0 || size >= PATH_MAX - 1) return 0;
        used = static_cast<std::size_t>(size);
        if (out[used - 1] != '/') out[used++] = '/';
        while (path[0] == '.' && path[1] == '/') path += 2;
    }
    const std::size_t size = std::strlen(path);
    if (size == 0 || used + size >= PATH_MAX) return 0;
    std::memcpy(out + used, path, size + 1);
    return used + size;
}

void opened(int fd, int folder, const char *path, int flags, std::uint64_t began_ns) {
    if (fd < 0 || fd >= kMostFds || path == nullptr || !in_own_process()) return;
    files[fd].entry.store(0, std::memory_order_relaxed);
    if (!enabled || (flags & O_ACCMODE) == O_WRONLY || (flags & (O_DIRECTORY | O_PATH)) != 0) return;
    const std::uint64_t now = now_ns();
    const int error = errno;
    char whole[PATH_MAX];
    const std::size_t size = absolute(folder, path, whole);
    if (size != 0 && !unstarve::is_program_file(whole, size) && is_regular(fd)) {
        const std::uint32_t number = table.find(whole, size);
        add(table[number].opens, 1);
        add(table[number].open_ns, now - began_ns);
        files[fd].position.store(0, std::memory_order_relaxed);
        files[fd].entry.store(number, std::memory_order_relaxed);
        write_if_due(now);
    }
    errno = error;
}

// A copy of a descriptor reads the same file; a copy of one that is not counted is not counted either.
void copied(int from, int to) {
    if (to < 0 || to >= kMostFds || from == to) return;
    const OpenFile *file = counted(from);
    if ((file == nullptr && counted(to) == nullptr) || !in_own_process()) return;
    files[to].position.store(file == nullptr ? 0 : file->position.load(), std::memory_order_relaxed);
    files[to].entry.store(file == nullptr ? 0 : file->entry.load(), std::memory_order_relaxed);
}

// `at` is where the call read; −1: behind the call before.
void has_read(OpenFile &file, long got, std::int64_t at, std::uint64_t began_ns) {
    const std::uint32_t number = file.entry.load(std::memory_order_relaxed);
    if (number == 0 || got < 0) return;  // closed by another thread, or failed
    const std::uint64_t now = now_ns(), taken_ns = now - began_ns;
    const auto bytes = static_cast<std::uint64_t>(got);
    FileEntry &entry = table[number];
    add(entry.reads, 1);
    add(entry.bytes, bytes);
    add(entry.read_ns, taken_ns);
    if (taken_ns > kSlow_ns + bytes) {
        add(entry.slow_reads, 1);
        add(entry.slow_ns, taken_ns);
    }
    if (taken_ns > entry.longest_ns.load(std::memory_order_relaxed)) {
        entry.longest_ns.store(taken_ns, std::memory_order_relaxed);
    }
    const std::int64_t position = file.position.load(std::memory_order_relaxed);
    if (at >= 0 && at != position) add(entry.jumps, 1);
    file.position.store((at >= 0 ? at : position) + got, std::memory_order_relaxed);
    write_if_due(now);
}

template <typename Call>
auto timed_read(int fd, std::int64_t at, Call call) {
    OpenFile *file = counted(fd);
    if (__builtin_expect(file == nullptr, 1)) return call();
    const std::uint64_t began_ns = now_ns();
    const auto got = call();
    has_read(*file, static_cast<long>(got), at, began_ns);
    return got;
}

void has_moved(int fd, std::int64_t to) {
    OpenFile *file = counted(fd);
    if (file == nullptr || to < 0) return;
    if (file->position.exchange(to, std::memory_order_relaxed) != to) {
        add(table[file->entry.load(std::memory_order_relaxed)].jumps, 1);
    }
}

void has_mapped(int fd, const void *mapped, std::size_t size) {
    OpenFile *file = counted(fd);
    if (file == nullptr || mapped == MAP_FAILED) return;
    const std::uint32_t number = file->entry.load(std::memory_order_relaxed);
    if (number == 0) return;
    add(table[number].maps, 1);
    add(table[number].mapped_bytes, size);
}

// −1 for a stream in memory.
int fd_of(FILE *file) {
    const int error = errno;
    const int fd = fileno(file);
    errno = error;
    return fd;
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
