#include "direct.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "bounces.h"
#include "pool.h"
#include "stream.h"
#include "uring.h"

#ifndef O_DIRECT
#define O_DIRECT 0  // another system: plain reads in pieces
#endif

namespace unstarve {
namespace {

// Good for every device of today: blocks are 512 or 4096 bytes.
constexpr std::uint64_t alignment = 4096;

// One long read is this many short ones, so that they are in flight together.
constexpr std::uint64_t piece_bytes = std::uint64_t{512} << 10;

constexpr std::uint64_t floor_to(std::uint64_t value) { return value / alignment * alignment; }
constexpr std::uint64_t ceil_to(std::uint64_t value) { return floor_to(value + alignment - 1); }

// The most memory that a piece of these reads takes.
std::uint64_t longest_piece(const std::vector<Read> &reads) {
    std::uint64_t longest = alignment;
    for (const Read &read : reads) {
        longest = std::max(longest, ceil_to(read.offset + read.length) - floor_to(read.offset));
    }
    return std::min(longest, piece_bytes);
}

// As many pieces again as are on their way: those that have arrived are copied while the next are read. A virtual
// disk's host works its queue off at one go and tells in the end: without them it would wait for the copies.
constexpr std::size_t slots_for(std::size_t depth) { return depth > 1 ? 2 * depth : 1; }

// A thread's queue and its bounce memory, kept for its next call.
struct Station {
    std::unique_ptr<Uring> ring;
    std::unique_ptr<Bounces> bounces;
    unsigned generation = 0;

    void prepare(unsigned depth, std::uint64_t slot_bytes) {
        if (generation != fork_generation() || (ring != nullptr && ring->depth() < slots_for(depth))) {
            ring.reset();  // the parent's, or too small
            generation = fork_generation();
        }
        if (depth > 1 && ring == nullptr && uring_allowed()) {
            ring = Uring::make(static_cast<unsigned>(slots_for(depth)));  // any slot may be on its way again
        }
        const std::size_t slots = slots_for(ring == nullptr ? 1 : depth);
        if (bounces == nullptr) {
            bounces = std::make_unique<Bounces>(slots, slot_bytes);
        } else if (!bounces->has(slots, slot_bytes)) {
            const std::size_t most = std::max(slots, bounces->slots());
            const std::uint64_t longest = std::max(slot_bytes, bounces->slot_bytes());
            bounces.reset();
            bounces = std::make_unique<Bounces>(most, longest);
        }
    }
};

// An aligned part of a read on its way.
struct Piece {
    std::shared_ptr<Opened> file;
    std::size_t run;
    std::size_t read;
    std::uint64_t from;  // in the file, aligned
    std::uint64_t size;  // aligned; may go past the end of the file
    std::uint64_t got;   // bytes already here
    std::byte *memory;   // a bounce buffer, or the destination itself where that is aligned
};

class Session {
  public:
    Session(DirectWork &work, Station &station, unsigned depth)
        : work_(work),
          station_(station),
          queue_(depth > 1 ? station.ring.get() : nullptr),
          depth_(queue_ == nullptr ? 1 : depth),
          pieces_(slots_for(depth_)) {
        for (std::size_t slot = pieces_.size(); slot-- > 0;) {
            free_.push_back(slot);
        }
        arrived_.reserve(pieces_.size());  // what has arrived can be noted even where no memory is left
        finishing_.reserve(pieces_.size());
    }

    // The caller's memory and ours are free to be used again when this is through, and not before: a queue that an
    // exception left with reads in it waits for them as it goes.
    ~Session() {
        if (in_flight_ > 0) {
            station_.ring.reset();
        }
    }
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    void run() {
        for (;;) {
            while (in_flight_ < depth_ && !free_.empty() && start_next()) {
            }
            if (arrived_.empty() && in_flight_ == 0) {
                break;
            }
            if (arrived_.empty()) {
                await();
            } else {
                take_in();
            }
        }
        finish_streaming();
        work_.direct_bytes += bytes_;
        const std::lock_guard<std::mutex> locked(work_.mutex);
        work_.refused.insert(work_.refused.end(), refused_.begin(), refused_.end());
    }

  private:
    // Starts one more piece. False: none is left.
    bool start_next() {
        while (from_ == end_) {
            if (!next_read()) {
                return false;
            }
        }
        const Read &read = work_.reads[read_];
        const std::size_t slot = free_.back();
        free_.pop_back();
        const std::uint64_t size = std::min(piece_bytes, end_ - from_);
        std::byte *memory = station_.bounces->at(slot);
        if (from_ >= read.offset && from_ + size <= read.offset + read.length) {
            std::byte *const destination = read.to + (from_ - read.offset);
            if (reinterpret_cast<std::uintptr_t>(destination) % alignment == 0) {
                memory = destination;
            }
        }
        pieces_[slot] = {file_, run_, read_, from_, size, 0, memory};
        from_ += size;
        start(slot);
        return true;
    }

    // Moves on to the next read of the open file, or to the first of the next file that opens.
    bool next_read() {
        if (file_ != nullptr && read_ + 1 < work_.runs[run_].end) {
            ++read_;
        } else if (!open_next()) {
            return false;
        }
        const Read &read = work_.reads[read_];
        from_ = floor_to(read.offset);
        end_ = read.length == 0 ? from_ : ceil_to(read.offset + read.length);
        return true;
    }

    bool open_next() {
        file_.reset();
        while (work_.pieces.take(run_)) {
            const Run &run = work_.runs[run_];
            const Read &first = work_.reads[run.first];
            auto file = std::make_shared<Opened>(first, O_DIRECT, Patience::any);
            if (file->fd() < 0 && file->error() != EINVAL) {
                work_.failures.add(run, Trouble::open, file->error());
            } else if (file->fd() < 0 || (::fcntl(file->fd(), F_GETFL) & O_DIRECT) != O_DIRECT) {
                refused_.push_back(run_);
            } else if (!file->is_as_expected(first)) {
                work_.failures.add(run, Trouble::changed, 0);
            } else {
                file_ = std::move(file);
                read_ = run.first;
                return true;
            }
        }
        return false;
    }

    void start(std::size_t slot) {
        const Piece &piece = pieces_[slot];
        ++in_flight_;
        std::byte *const to = piece.memory + piece.got;
        const auto length = static_cast<std::uint32_t>(piece.size - piece.got);
        if (queue_ != nullptr) {
            work_.used_uring = true;
            queue_->read(piece.file->fd(), to, length, piece.from + piece.got, slot);
            return;
        }
        const ssize_t got = ::pread(piece.file->fd(), to, length, static_cast<off_t>(piece.from + piece.got));
        arrive(slot, got < 0 ? -errno : static_cast<std::int32_t>(got));
    }

    void arrive(std::size_t slot, std::int32_t result) {
        --in_flight_;
        arrived_.push_back({slot, result});
    }

    // Finishes what has arrived, while storage goes on with what was started since.
    void take_in() {
        if (queue_ != nullptr) {
            queue_->submit();
        }
        std::swap(arrived_, finishing_);
        for (const Arrived &one : finishing_) {
            finish(one.slot, one.result);
        }
        finishing_.clear();
    }

    void await() {
        const bool goes_on = queue_->wait_for_one();
        if (!goes_on) {
            queue_->settle();
        }
        std::uint64_t slot = 0;
        std::int32_t result = 0;
        while (queue_->take(slot, result)) {
            arrive(static_cast<std::size_t>(slot), result);
        }
        if (!goes_on) {
            go_on_without_queue();
        }
    }

    // Somebody closed its descriptor. What it had started has arrived; the rest is read by waiting for each.
    void go_on_without_queue() {
        const std::unique_ptr<Uring> broken = std::move(station_.ring);
        queue_ = nullptr;
        for (std::uint64_t slot = 0; broken->take_back(slot);) {
            --in_flight_;
            start(static_cast<std::size_t>(slot));
        }
    }

    void finish(std::size_t slot, std::int32_t result) {
        Piece &piece = pieces_[slot];
        if (result == -EINTR || result == -EAGAIN) {
            start(slot);
            return;
        }
        const Read &read = work_.reads[piece.read];
        const std::uint64_t wanted_end = std::min(piece.from + piece.size, read.offset + read.length);
        const std::uint64_t before = std::max(piece.from, read.offset);  // first wanted byte
        if (result == -EINVAL) {
            refused_.push_back(piece.run);  // it could be opened, but not be read like this
        } else if (result < 0) {
            work_.failures.add(piece.read, Trouble::read, -result, before - read.offset);
        } else {
            piece.got += static_cast<std::uint64_t>(result);
            bytes_ += static_cast<std::uint64_t>(result);
            const std::uint64_t here_end = piece.from + piece.got;
            if (here_end < wanted_end && result > 0 && piece.got % alignment == 0) {
                start(slot);
                return;
            }
            if (here_end < wanted_end) {
                work_.failures.add(piece.read, Trouble::ended, 0, std::max(here_end, before) - read.offset);
            } else if (piece.memory == station_.bounces->at(slot)) {
                copy_out(read.to + (before - read.offset), piece.memory + (before - piece.from),
                         wanted_end - before);
            }
        }
        piece.file.reset();
        free_.push_back(slot);
    }

    void copy_out(std::byte *to, const std::byte *from, std::size_t count) const {
        if (worth_streaming(work_.total_bytes, count)) {
            copy_streaming(to, from, count);
        } else {
            std::memcpy(to, from, count);
        }
    }

    struct Arrived {
        std::size_t slot;
        std::int32_t result;  // bytes read, or a negative errno
    };

    DirectWork &work_;
    Station &station_;
    Uring *queue_;               // nullptr: each read is waited for
    std::size_t depth_;          // so many reads are begun before one is waited for
    std::vector<Piece> pieces_;  // one per slot
    std::vector<Arrived> arrived_;
    std::vector<Arrived> finishing_;
    std::vector<std::size_t> free_;
    std::vector<std::size_t> refused_;
    std::size_t in_flight_ = 0;
    std::uint64_t bytes_ = 0;

    // What has been started so far: all of `read_` before `from_`.
    std::shared_ptr<Opened> file_;
    std::size_t run_ = 0;
    std::size_t read_ = 0;
    std::uint64_t from_ = 0;
    std::uint64_t end_ = 0;
};

}  // namespace

bool uring_allowed() {
    static const bool allowed = Uring::make(2) != nullptr;
    return allowed;
}

void take_part_directly(DirectWork &work, unsigned depth) {
    thread_local Station station;
    station.prepare(depth, longest_piece(work.reads));
    Session(work, station, depth).run();
}

}  // namespace unstarve
