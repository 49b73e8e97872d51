#include "formats.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "files.h"
#include "layout.h"
#include "pool.h"

#ifndef O_DIRECT
#define O_DIRECT 0
#endif

namespace unstarve {
namespace {

constexpr unsigned default_threads = 16;  // they wait for storage
constexpr std::uint64_t alignment = 4096;

struct Free {
    void operator()(std::uint8_t *memory) const { std::free(memory); }
};

struct WouldWait {};

// Throws WouldWait if it is read without patience and has to be fetched.
class File final : public Source {
  public:
    File(const Opened &file, bool direct, Patience patience)
        : Source(static_cast<std::uint64_t>(file.size_bytes())),
          fd_(file.fd()),
          direct_(direct),
          patience_(patience) {}

  private:
    std::uint64_t fetch(std::uint64_t offset, std::uint8_t *to, std::uint64_t length) const override {
        if (!direct_) {
            return read(offset, to, length);
        }
        const std::uint64_t from = offset / alignment * alignment;
        const std::uint64_t size = (offset + length - from + alignment - 1) / alignment * alignment;
        const std::unique_ptr<std::uint8_t, Free> memory(
            static_cast<std::uint8_t *>(std::aligned_alloc(alignment, size)));
        if (memory == nullptr) {
            throw std::bad_alloc();
        }
        const std::uint64_t got = read(from, memory.get(), size);
        const std::uint64_t before = offset - from;
        const std::uint64_t usable = got < before ? 0 : std::min(got - before, length);
        std::memcpy(to, memory.get() + before, usable);
        return usable;
    }

    std::uint64_t read(std::uint64_t offset, std::uint8_t *to, std::uint64_t length) const {
        std::uint64_t got = 0;
        while (got < length) {
            const ssize_t more = read_some(fd_, to + got, length - got, offset + got, patience_);
            if (more < 0 && patience_ == Patience::none) {
                throw WouldWait{};
            }
            if (more <= 0 && !(more < 0 && errno == EINTR)) {
                break;
            }
            got += more > 0 ? static_cast<std::uint64_t>(more) : 0;
            if (direct_ && got % alignment != 0) {
                break;  // the end of the file
            }
        }
        return got;
    }

    int fd_;
    bool direct_;
    Patience patience_;
};

Answer answer_to(const Question &question, bool direct) {
    Answer answer;
    Read read{question.path, -1, 0, 0, nullptr, -1, -1};
    auto file = std::make_unique<Opened>(read, direct ? O_DIRECT : 0, Patience::any);
    if (direct && file->error() == EINVAL) {
        direct = false;
        file = std::make_unique<Opened>(read, 0, Patience::any);
    }
    if (file->fd() < 0) {
        answer.error = file->error();
        return answer;
    }
    answer.size_bytes = file->size_bytes();
    answer.mtime_ns = file->mtime_ns();
    try {
        answer.layout = layout_of(question.format, File(*file, direct, Patience::any));
        answer.found = Found::layout;
    } catch (const Unsupported &unsupported) {
        answer.found = Found::unsupported;
        answer.reason = unsupported.reason;
    } catch (const Damaged &damaged) {
        answer.found = Found::damaged;
        answer.reason = damaged.reason;
    } catch (const std::bad_alloc &) {
        answer.error = ENOMEM;
    }
    return answer;
}

}  // namespace

std::vector<std::uint8_t> Source::bytes(std::uint64_t offset, std::uint64_t length) const {
    if (offset > size_bytes_ || length > size_bytes_ - offset) {
        throw Damaged{"something it refers to lies past its end"};
    }
    std::vector<std::uint8_t> all(static_cast<std::size_t>(length));
    if (length != 0 && fetch(offset, all.data(), length) != length) {
        throw Damaged{"it became shorter while it was read, or cannot be read"};
    }
    return all;
}

Layout layout_of(Format format, const Source &source) {
    switch (format) {
        case Format::pt: return pt_layout(source);
        case Format::npy: return npy_layout(source);
        case Format::safetensors: return safetensors_layout(source);
    }
    throw Unsupported{"it is of no known format"};
}

std::vector<Answer> find_layouts(const std::vector<Question> &questions, bool direct, unsigned threads) {
    std::vector<Answer> answers(questions.size());
    Pieces pieces(questions.size());
    const std::size_t most = threads == 0 ? default_threads : threads;
    run_on_pool(static_cast<unsigned>(std::min(questions.size(), most)), pieces, [&] {
        for (std::size_t i; pieces.take(i);) {
            answers[i] = answer_to(questions[i], direct);
        }
    });
    return answers;
}

Finder::Seen LayoutFinder::look(const Opened &file, Patience patience, std::vector<Read> &reads, const Run &run) {
    const std::size_t each = tensors_.size();
    Layout layout;
    try {
        layout = layout_of(static_cast<Format>(formats_[run.first / each]), File(file, false, patience));
    } catch (const WouldWait &) {
        return Seen::waits;
    } catch (const Unsupported &) {
        return Seen::other;
    } catch (const Damaged &) {
        return Seen::other;
    }
    if (layout.structure != structure_ || layout.columns.size() + 2 != width_) {
        return Seen::other;
    }
    for (std::size_t i = run.first; i < run.end; ++i) {
        reads[i].offset = static_cast<std::uint64_t>(layout.columns[tensors_[i % each]]);
        reads[i].size_bytes = file.size_bytes();
        reads[i].mtime_ns = file.mtime_ns();
    }
    for (std::size_t row = run.first / each; row < run.end / each; ++row) {  // several: one file more than once
        std::int64_t *const to = rows_ + row * width_;
        to[0] = file.size_bytes();
        to[1] = file.mtime_ns();
        std::copy(layout.columns.begin(), layout.columns.end(), to + 2);
    }
    found_some_ = true;
    return Seen::found;
}

}  // namespace unstarve
