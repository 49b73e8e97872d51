#include "reader.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "files.h"
#include "forking.h"
#include "pool.h"

namespace {

std::string folder;

std::byte byte_at(std::size_t file, std::size_t at) {
    return static_cast<std::byte>((at * 31 + at / 251 + file * 17) & 0xff);
}

std::string write_file(std::size_t file, std::size_t bytes) {
    std::vector<std::byte> data(bytes);
    for (std::size_t at = 0; at < bytes; ++at) {
        data[at] = byte_at(file, at);
    }
    const std::string path = folder + "/" + std::to_string(file);
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK(write(fd, data.data(), bytes) == static_cast<ssize_t>(bytes));
    fsync(fd);
    close(fd);
    return path;
}

void evict(const std::string &path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

struct Stretch {
    std::size_t file;
    std::size_t offset;
    std::size_t length;
};

// Reads stretches of `paths` and compares every byte.
void gives_the_bytes(const std::vector<std::string> &paths, const std::vector<Stretch> &stretches,
                     unstarve::How how, std::size_t shift) {
    std::size_t total = shift;
    for (const Stretch &stretch : stretches) {
        total += stretch.length;
    }
    std::vector<std::byte> out(total);
    std::vector<unstarve::Read> reads;
    std::size_t to = shift;
    for (const Stretch &stretch : stretches) {
        reads.push_back({paths[stretch.file].c_str(), -1, stretch.offset, stretch.length, out.data() + to, -1, -1});
        to += stretch.length;
    }
    const unstarve::Report report = unstarve::read_all(reads, how);
    CHECK(report.failures.empty());
    for (std::size_t i = 0; i < reads.size(); ++i) {
        for (std::size_t at = 0; at < reads[i].length; ++at) {
            CHECK(reads[i].to[at] == byte_at(stretches[i].file, stretches[i].offset + at));
        }
    }
}

const unstarve::How hows[] = {
    {false, 0, 0, true}, {false, 0, 1, true}, {false, 0, 7, true}, {true, 0, 0, true},
    {true, 1, 1, true},  {true, 4, 2, true},  {true, 5, 0, false}, {true, 64, 0, true},
};

void reads_any_stretch_in_any_way() {
    std::vector<std::string> paths;
    std::vector<Stretch> stretches;
    for (std::size_t file = 0; file < 40; ++file) {
        const std::size_t bytes = file * 701 + 1;
        paths.push_back(write_file(file, bytes));
        stretches.push_back({file, 0, bytes});
        stretches.push_back({file, bytes / 3, bytes / 2});
        stretches.push_back({file, bytes - 1, 1});
        stretches.push_back({file, bytes, 0});
    }
    paths.push_back(write_file(40, 3'000'001));
    stretches.push_back({40, 0, 3'000'001});
    stretches.push_back({40, 4096, 2'000'000});
    stretches.push_back({40, 524'287, 524'290});
    for (const unstarve::How &how : hows) {
        for (const std::size_t shift : {0, 1, 4096}) {
            for (const std::string &path : paths) {
                evict(path);
            }
            gives_the_bytes(paths, stretches, how, shift);
            gives_the_bytes(paths, stretches, how, shift);
        }
    }
}

// What a thread keeps from a call is too small for the next one, in either measure, and then larger than needed.
void longer_reads_and_deeper_queues_may_follow() {
    const std::vector<std::string> paths{write_file(0, 2'000'000)};
    for (const auto &[length, depth] : {std::pair<std::size_t, unsigned>{10, 2}, {30'000, 2}, {30'000, 16},
                                        {1'500'000, 2}, {10, 32}, {700'000, 3}}) {
        std::vector<Stretch> stretches;
        for (std::size_t i = 0; i < 20; ++i) {
            stretches.push_back({0, i * 1009 + 1, length});
        }
        gives_the_bytes(paths, stretches, {true, depth, 1, true}, 0);
    }
}

void aligned_memory_is_filled_in_place() {
    const std::string path = write_file(50, 8192 + 100);
    auto *const memory = static_cast<std::byte *>(std::aligned_alloc(4096, 16384));
    for (const unstarve::How &how : hows) {
        std::memset(memory, 0, 16384);
        const unstarve::Report report =
            unstarve::read_all({{path.c_str(), -1, 0, 8192, memory, -1, -1}}, how);
        CHECK(report.failures.empty());
        for (std::size_t at = 0; at < 8192; ++at) {
            CHECK(memory[at] == byte_at(50, at));
        }
        CHECK(memory[8192] == std::byte{0});
    }
    std::free(memory);
}

void one_bad_file_loses_nothing_of_the_others() {
    const std::string good = write_file(60, 100'000);
    const std::string brief = write_file(61, 700);
    const std::string missing = folder + "/missing";
    for (const unstarve::How &how : hows) {
        std::vector<std::byte> out(500'000);
        const unstarve::Report report = unstarve::read_all(
            {
                {good.c_str(), -1, 0, 100'000, out.data(), 100'000, -1},
                {missing.c_str(), -1, 0, 100, out.data() + 100'000, -1, -1},
                {brief.c_str(), -1, 300, 1000, out.data() + 200'000, -1, -1},
                {good.c_str(), -1, 5, 10, out.data() + 300'000, 100'001, -1},
                {nullptr, 9999, 0, 10, out.data() + 310'000, -1, -1},
                {good.c_str(), -1, 50'000, 100'000, out.data() + 400'000, -1, -1},
            },
            how);
        CHECK(report.failures.size() == 5);
        CHECK(report.failures[0].read == 1 && report.failures[0].trouble == unstarve::Trouble::open);
        CHECK(report.failures[0].error == ENOENT);
        CHECK(report.failures[1].read == 2 && report.failures[1].trouble == unstarve::Trouble::ended);
        CHECK(report.failures[1].got == 400);
        CHECK(report.failures[2].read == 3 && report.failures[2].trouble == unstarve::Trouble::changed);
        CHECK(report.failures[3].read == 4 && report.failures[3].error == EBADF);
        CHECK(report.failures[4].read == 5 && report.failures[4].got == 50'000);
        for (std::size_t at = 0; at < 100'000; ++at) {
            CHECK(out[at] == byte_at(60, at));
        }
    }
}

void descriptors_are_read_as_they_were_opened() {
    const std::string path = write_file(70, 100'000);
    for (const int flags : {0, O_DIRECT}) {
        const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
        CHECK(fd >= 0);
        std::vector<std::byte> out(3 * 1001);
        std::vector<unstarve::Read> reads;
        for (std::size_t i = 0; i < 3; ++i) {
            reads.push_back({nullptr, fd, 777 * i, 1001, out.data() + i * 1001, -1, -1});
        }
        const unstarve::Report report = unstarve::read_all(reads, {true, 0, 0, true});
        CHECK(report.failures.empty());
        CHECK(report.direct_refused == (flags == 0));
        for (std::size_t i = 0; i < 3; ++i) {
            CHECK(out[i * 1001 + 1000] == byte_at(70, 777 * i + 1000));
        }
        CHECK(fcntl(fd, F_GETFL) >= 0);
        close(fd);
    }
}

void what_has_no_direct_reads_is_read_through_the_cache() {
    std::vector<std::byte> out(5);
    const unstarve::Report report =
        unstarve::read_all({{"/proc/version", -1, 0, 5, out.data(), -1, -1}}, {true, 0, 0, true});
    CHECK(report.failures.empty());
    CHECK(report.direct_refused);
    CHECK(report.direct_bytes == 0);
    CHECK(std::memcmp(out.data(), "Linux", 5) == 0);
}

// The descriptors of queues in this process: what a training that closes all it does not know closes with them.
std::vector<int> queues() {
    std::vector<int> found;
    std::error_code gone;
    for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd", gone)) {
        if (std::filesystem::read_symlink(entry.path(), gone).string() == "anon_inode:[io_uring]") {
            found.push_back(std::stoi(entry.path().filename().string()));
        }
    }
    return found;
}

// Somebody closes the queue's descriptor sooner or later during a read. All bytes come nevertheless, and what the
// kernel still had on its way has come before the memory is its owner's again.
void a_queue_that_is_closed_loses_nothing_and_writes_nothing_later() {
    constexpr std::size_t bytes = 6'000'000;  // many pieces, the last of which goes through bounce memory
    constexpr std::size_t room = 6'000'640;
    static_assert(room % 4096 == 0);
    const std::string path = write_file(80, bytes);
    std::vector<std::byte> expected(bytes);
    for (std::size_t at = 0; at < bytes; ++at) {
        expected[at] = byte_at(80, at);
    }
    const std::vector<std::byte> untouched(room, std::byte{0xee});
    auto *const memory = static_cast<std::byte *>(std::aligned_alloc(4096, room));
    const auto read_it = [&] {
        std::memset(memory, 0, room);
        const unstarve::Report report =
            unstarve::read_all({{path.c_str(), -1, 0, bytes, memory, -1, -1}}, {true, 8, 1, true});
        CHECK(report.failures.empty());
        CHECK(std::memcmp(memory, expected.data(), bytes) == 0);
        return report.used_uring;
    };
    for (int i = 0; i < 20 && read_it(); ++i) {
        if (queues().empty()) {
            read_it();  // the one that was closed after the read is noticed, and made anew, only here
        }
        CHECK(queues().size() == 1);
        std::thread closer([i, queue = queues()[0]] {
            std::this_thread::sleep_for(std::chrono::microseconds(i * 150));
            CHECK(close(queue) == 0);
        });
        read_it();
        std::memset(memory, 0xee, room);
        closer.join();
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        CHECK(std::memcmp(memory, untouched.data(), room) == 0);
    }
    std::free(memory);
}

// The number of a descriptor that was closed may stand for another file soon.
void a_queue_that_was_closed_closes_nobody_elses_file() {
    const std::string path = write_file(81, 100'000);
    std::vector<std::byte> out(100'000);
    const auto read_it = [&] {
        return unstarve::read_all({{path.c_str(), -1, 0, out.size(), out.data(), -1, -1}}, {true, 8, 1, true});
    };
    if (!read_it().used_uring || !read_it().used_uring) {  // the second has a queue, whatever the first one found
        return;
    }
    const int queue = queues().at(0);
    const int other = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    CHECK(dup2(other, queue) == queue);
    CHECK(read_it().failures.empty());
    CHECK(fcntl(queue, F_GETFD) >= 0);
    CHECK(queues().empty());
    close(queue);
    close(other);
}

void several_threads_read_at_once(const std::vector<std::string> &paths, const std::vector<Stretch> &stretches) {
    std::vector<std::thread> callers;
    for (const unstarve::How &how : hows) {
        callers.emplace_back([&paths, &stretches, how] { gives_the_bytes(paths, stretches, how, 3); });
    }
    for (std::thread &caller : callers) {
        caller.join();
    }
}

void a_forked_child_reads_with_threads_of_its_own(const std::vector<std::string> &paths,
                                                  const std::vector<Stretch> &stretches) {
#ifdef __SANITIZE_THREAD__
    return;  // its runtime cannot start threads in the child of a process that had some
#endif
    const pid_t child = fork_at_rest();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(unstarve::pool_size() == 0);
        for (const unstarve::How &how : hows) {
            gives_the_bytes(paths, stretches, how, 0);
        }
        CHECK(unstarve::pool_size() > 0);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Every read of a file that is not looked into, or has changed, starts where the file's own first byte says.
class FirstByte final : public unstarve::Finder {
  public:
    explicit FirstByte(std::string other) : other_(std::move(other)) {}

    Seen look(const unstarve::Opened &file, unstarve::Patience patience, std::vector<unstarve::Read> &reads,
              const unstarve::Run &run) override {
        ++looks;
        if (patience == unstarve::Patience::none && file.size_bytes() % 2 == 1) {
            return Seen::waits;
        }
        if (reads[run.first].path == other_) {
            return Seen::other;
        }
        std::byte first{};
        CHECK(unstarve::read_some(file.fd(), &first, 1, 0, unstarve::Patience::any) == 1);
        for (std::size_t i = run.first; i < run.end; ++i) {
            reads[i].offset = static_cast<std::uint64_t>(first);
            reads[i].size_bytes = file.size_bytes();
        }
        return Seen::found;
    }

    std::atomic<unsigned> looks{0};

  private:
    const std::string other_;
};

void files_are_looked_into_while_they_are_read() {
    constexpr std::size_t files = 60;
    std::vector<std::string> paths;
    for (std::size_t file = 0; file < files; ++file) {
        paths.push_back(write_file(file, 2'000 + file));
    }
    const std::string missing = folder + "/missing";
    for (const unsigned threads : {1u, 0u, 4u}) {
        std::vector<std::byte> out(files * 200);
        std::vector<unstarve::Read> reads;
        for (std::size_t file = 0; file < files; ++file) {
            // One is known, one is known as it was, one cannot be opened; the others are new. Two reads of each.
            const std::int64_t size = file == 4 ? 2'004 : file == 5 ? 17 : unstarve::not_looked_into;
            const char *const path = file == 7 ? missing.c_str() : paths[file].c_str();
            for (std::size_t half = 0; half < 2; ++half) {
                reads.push_back({path, -1, 0, 100, out.data() + file * 200 + half * 100, size, -1});
            }
        }
        FirstByte finder(paths[9]);
        const unstarve::Report report = unstarve::read_all(reads, {false, 0, threads, true}, &finder);
        CHECK(report.failures.size() == 4);
        for (std::size_t i = 0; i < 4; ++i) {
            CHECK(report.failures[i].read == (i < 2 ? 14 : 16) + i);
            CHECK(report.failures[i].trouble == unstarve::Trouble::other);
            CHECK(report.failures[i].error == (i < 2 ? ENOENT : 0));
        }
        CHECK(finder.looks >= files - 2);
        for (std::size_t file = 0; file < files; ++file) {
            const std::size_t offset = file == 4 ? 0 : static_cast<std::size_t>(byte_at(file, 0));
            for (std::size_t at = 0; at < 200 && file != 7 && file != 9; ++at) {
                CHECK(out[file * 200 + at] == byte_at(file, offset + at % 100));
            }
        }
    }
}

}  // namespace

int main() {
    char name[] = "test_reader_XXXXXX";
    CHECK(mkdtemp(name) != nullptr);
    folder = name;
    a_queue_that_is_closed_loses_nothing_and_writes_nothing_later();
    a_queue_that_was_closed_closes_nobody_elses_file();
    longer_reads_and_deeper_queues_may_follow();
    reads_any_stretch_in_any_way();
    aligned_memory_is_filled_in_place();
    one_bad_file_loses_nothing_of_the_others();
    descriptors_are_read_as_they_were_opened();
    what_has_no_direct_reads_is_read_through_the_cache();
    files_are_looked_into_while_they_are_read();
    std::vector<std::string> paths;
    std::vector<Stretch> stretches;
    for (std::size_t file = 0; file < 30; ++file) {
        paths.push_back(write_file(file, 50'000));
        stretches.push_back({file, file * 100 + 1, 20'000});
    }
    several_threads_read_at_once(paths, stretches);
    a_forked_child_reads_with_threads_of_its_own(paths, stretches);
    CHECK(std::system(("rm -rf '" + folder + "'").c_str()) == 0);
}
