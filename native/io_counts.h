// What one process counts of its file reads: its open files, its table, and when the table is written.
// Only io_shim.cpp includes it. The calls in here that could be wrapped are made as system calls.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>

#include "io_table.h"

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

}  // namespace
