// Feeds a fuzz target what comes through standard input, as `fuzz/child.py` does: for each input its length (32 bits,
// little-endian) and its bytes; for each a line on standard output. Where clang is, libFuzzer takes this file's place.
#include <sys/resource.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);

namespace {

void allow_cpu_seconds(rlim_t more) {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto spent = static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec);
    rlimit limit{};
    getrlimit(RLIMIT_CPU, &limit);
    limit.rlim_cur = spent + more + 1;
    setrlimit(RLIMIT_CPU, &limit);
}

}  // namespace

int main(int count, char **arguments) {
    const auto cpu_seconds = static_cast<rlim_t>(count > 1 ? std::atoi(arguments[1]) : 10);
    std::uint8_t head[4];
    std::puts("ready");
    std::fflush(stdout);
    while (std::fread(head, 1, sizeof head, stdin) == sizeof head) {
        const std::size_t size = head[0] | head[1] << 8 | head[2] << 16 | static_cast<std::size_t>(head[3]) << 24;
        const std::unique_ptr<std::uint8_t[]> data(new std::uint8_t[size]);  // exactly: a byte too far is seen
        if (std::fread(data.get(), 1, size, stdin) != size) {
            return 1;
        }
        allow_cpu_seconds(cpu_seconds);
        LLVMFuzzerTestOneInput(data.get(), size);
        std::puts("{}");
        std::fflush(stdout);
    }
}
