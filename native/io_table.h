// Counters of file reading by path, in memory of a fixed size: no allocation, no lock, safe in signal handlers.
// The table is written to a file as it lies in memory; src/unstarve/record/read_counts.py reads it back.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace unstarve {

using Count = std::atomic<std::uint64_t>;

// What one process did with one file; `seconds` are nanoseconds here. Python unpacks it: keep the order.
struct FileEntry {
    std::atomic<std::uint64_t> hash;
    std::uint32_t path_at;
    std::uint32_t path_size;
    Count opens;
    Count open_ns;
    Count reads;
    Count bytes;
    Count read_ns;
    Count slow_reads;
    Count slow_ns;
    Count longest_ns;
    Count jumps;
    Count maps;
    Count mapped_bytes;
    Count unused;
};
static_assert(sizeof(FileEntry) == 112, "Python unpacks it");

struct TableHeader {
    char magic[8];
    std::uint32_t process;
    std::uint32_t entry_size;
    std::atomic<std::uint32_t> entries;
    std::atomic<std::uint32_t> text;
    std::uint32_t entries_at;
    std::uint32_t text_at;
    std::uint32_t is_python;
};

inline void add(Count &count, std::uint64_t more) { count.fetch_add(more, std::memory_order_relaxed); }

// All members are zero at first: static memory needs no constructor, which may run after the first use.
template <std::uint32_t kEntries, std::uint32_t kText>
class FileTable {
public:
    // The share of the table for single files. Further files are counted by their folder: "/data/train/".
    static constexpr std::uint32_t kFiles = kEntries / 4 * 3;
    static constexpr std::uint32_t kEntriesAt = 64;
    static constexpr std::uint32_t kTextAt = kEntriesAt + kEntries * sizeof(FileEntry);

    // The number of the entry for this path, from 1; entry 1 is for everything that found no place.
    std::uint32_t find(const char *path, std::size_t size) {
        if (used_.load(std::memory_order_relaxed) == 0) insert("", 0, kEntries);
        if (const std::uint32_t file = insert(path, size, kFiles)) return file;
        while (size > 0 && path[size - 1] != '/') --size;
        const std::uint32_t folder = size > 0 ? insert(path, size, kEntries) : 0;
        return folder != 0 ? folder : 1;
    }

    FileEntry &operator[](std::uint32_t number) { return entries_[number - 1]; }

    std::uint32_t entries() const {
        const std::uint32_t used = used_.load(std::memory_order_acquire);
        return used < kEntries ? used : kEntries;
    }

    // A forked child counts from zero. It keeps the paths: it has inherited open files.
    void zero() {
        for (std::uint32_t at = 0; at < entries(); ++at) {
            std::memset(static_cast<void *>(&entries_[at].opens), 0, sizeof(FileEntry) - offsetof(FileEntry, opens));
        }
    }

    // Calls `put(memory, size, at)` for every piece of the file; an entry may be counting meanwhile.
    template <typename Put>
    void write(std::uint32_t process, bool is_python, Put put) const {
        TableHeader header{};
        std::memcpy(header.magic, "UNSTIO01", sizeof header.magic);
        header.process = process;
        header.entry_size = sizeof(FileEntry);
        header.entries = entries();
        const std::uint32_t text = text_.load(std::memory_order_acquire);
        header.text = text < kText ? text : kText;
        header.entries_at = kEntriesAt;
        header.text_at = kTextAt;
        header.is_python = is_python ? 1 : 0;
        put(static_cast<const void *>(text_bytes_), header.text.load(), kTextAt);
        put(static_cast<const void *>(entries_), header.entries.load() * sizeof(FileEntry), kEntriesAt);
        put(static_cast<const void *>(&header), sizeof header, 0);
    }

private:
    static constexpr std::uint32_t kSlots = kEntries * 4;
    static_assert((kSlots & (kSlots - 1)) == 0, "a power of two");

    static std::uint64_t hash_of(const char *path, std::size_t size) {
        std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
        for (std::size_t at = 0; at < size; ++at) {
            hash = (hash ^ static_cast<unsigned char>(path[at])) * 0x100000001b3u;
        }
        return hash != 0 ? hash : 1;
    }

    // Zero when there is no place left. Two paths with the same 64 bits of hash would be one: never mind.
    std::uint32_t insert(const char *path, std::size_t size, std::uint32_t most) {
        const std::uint64_t hash = hash_of(path, size);
        for (std::uint32_t tried = 0; tried < kSlots; ++tried) {
            std::atomic<std::uint32_t> &slot = slots_[(hash + tried) & (kSlots - 1)];
            std::uint32_t number = slot.load(std::memory_order_acquire);
            if (number == 0) {
                number = fill(hash, path, size, most);
                if (number == 0) return 0;
                std::uint32_t empty = 0;
                if (slot.compare_exchange_strong(empty, number, std::memory_order_acq_rel)) return number;
                number = empty;  // another thread was first; the entry we filled stays without counts
            }
            if (entries_[number - 1].hash.load(std::memory_order_relaxed) == hash) return number;
        }
        return 0;
    }

    std::uint32_t fill(std::uint64_t hash, const char *path, std::size_t size, std::uint32_t most) {
        if (used_.load(std::memory_order_relaxed) >= most || size > kText) return 0;
        const auto length = static_cast<std::uint32_t>(size);
        std::uint32_t text = text_.load(std::memory_order_relaxed);
        do {
            if (text + length > kText) return 0;
        } while (!text_.compare_exchange_weak(text, text + length, std::memory_order_relaxed));
        std::uint32_t used = used_.load(std::memory_order_relaxed);
        do {
            if (used >= most) return 0;
        } while (!used_.compare_exchange_weak(used, used + 1, std::memory_order_relaxed));
        std::memcpy(text_bytes_ + text, path, size);
        FileEntry &entry = entries_[used];
        entry.path_at = text;
        entry.path_size = length;
        entry.hash.store(hash, std::memory_order_release);
        return used + 1;
    }

    std::atomic<std::uint32_t> used_;
    std::atomic<std::uint32_t> text_;
    std::atomic<std::uint32_t> slots_[kSlots];
    FileEntry entries_[kEntries];
    char text_bytes_[kText];
};

// Whether reading this file is not loading data: the kernel's files, and those of programs and of Python.
inline bool is_program_file(const char *path, std::size_t size) {
    const auto begins = [&](const char *with) { return std::strncmp(path, with, std::strlen(with)) == 0; };
    const auto ends = [&](const char *with) {
        const std::size_t length = std::strlen(with);
        return size >= length && std::memcmp(path + size - length, with, length) == 0;
    };
    for (const char *folder : {"/proc/", "/sys/", "/dev/", "/etc/", "/lib/", "/lib64/", "/usr/lib", "/usr/include/",
                               "/usr/share/"}) {
        if (begins(folder)) return true;
    }
    for (const char *suffix : {".py", ".pyc", ".pyi", ".so", "/pyvenv.cfg"}) {
        if (ends(suffix)) return true;
    }
    for (const char *part : {"/site-packages/", "/dist-packages/", "/lib/python3", "/__pycache__/", ".so.",
                             "/torchinductor_", "/.triton/", ".unstarve.parts/"}) {
        if (std::strstr(path, part) != nullptr) return true;
    }
    return false;
}

}  // namespace unstarve
