// Find where tensors lie in a .pt, .npy or .safetensors file. Nothing in a file is executed or trusted: every
// offset is checked against the file, and memory is bounded by the size of the file.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reader.h"

namespace unstarve {

enum class Format : std::uint8_t { pt, npy, safetensors };

// What a file holds. `structure` is a JSON text without spaces:
//
//   ["t","float32",[3,224,224]]   a tensor, C-contiguous in the file   column: its offset in the file
//   "i"  "f"  "b"                 an int, float, bool                  column: its bits as int64
//   ["d",[["key",…],…]]  ["o",…]  a dict, an OrderedDict
//   ["u",[…]]  ["l",[…]]          a tuple, a list
//
// Files of the same structure have the same text; `columns` holds what differs, one per leaf, in order.
struct Layout {
    std::string structure;
    std::vector<std::int64_t> columns;
};

// Throws these; nothing else but std::bad_alloc gets out.
struct Unsupported {
    std::string reason;  // perhaps a good file, but not for us: the library of its format should load it
};
struct Damaged {
    std::string reason;  // cannot be a good file
};

// The bytes of one file.
class Source {
  public:
    explicit Source(std::uint64_t size_bytes) : size_bytes_(size_bytes) {}
    virtual ~Source() = default;
    std::uint64_t size_bytes() const { return size_bytes_; }

    // The bytes from `offset`; throws Damaged if the file is too short.
    std::vector<std::uint8_t> bytes(std::uint64_t offset, std::uint64_t length) const;

  protected:
    // The number of bytes read; fewer than requested means that the file has shrunk.
    virtual std::uint64_t fetch(std::uint64_t offset, std::uint8_t *to, std::uint64_t length) const = 0;

  private:
    std::uint64_t size_bytes_;
};

Layout layout_of(Format format, const Source &source);

// The layouts of many files, found by several threads.
struct Question {
    const char *path;
    Format format;
};

enum class Found : std::uint8_t { layout, unsupported, damaged, no_file };

struct Answer {
    Found found = Found::no_file;
    int error = 0;       // errno or not_regular, for no_file
    std::string reason;  // for unsupported and damaged
    Layout layout;
    std::int64_t size_bytes = -1;
    std::int64_t mtime_ns = -1;
};

// `direct` reads headers past the page cache where the file system can; `threads` 0 chooses.
std::vector<Answer> find_layouts(const std::vector<Question> &questions, bool direct, unsigned threads);

// Finds the layouts of files while they are read, if all have one structure.
//
// There are as many reads for each file as `tensors`: the columns that are their offsets. A file's row takes its
// size, its time and its columns; rows of files that nothing was found in stay as they are.
class LayoutFinder final : public Finder {
  public:
    LayoutFinder(std::string_view structure, const std::uint8_t *formats, std::vector<std::size_t> tensors,
                 std::int64_t *rows, std::size_t row_width)
        : structure_(structure), formats_(formats), tensors_(std::move(tensors)), rows_(rows), width_(row_width) {}

    Seen look(const Opened &file, Patience patience, std::vector<Read> &reads, const Run &run) override;

    bool found_some() const { return found_some_; }

  private:
    const std::string_view structure_;
    const std::uint8_t *const formats_;
    const std::vector<std::size_t> tensors_;
    std::int64_t *const rows_;
    const std::size_t width_;
    std::atomic<bool> found_some_{false};
};

}  // namespace unstarve
