// A fork that sanitizers survive.
#pragma once

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>

// Whether all threads but this one sleep.
inline bool others_sleep() {
    const std::string self = std::to_string(getpid());  // the main thread, which is the one that asks
    std::error_code gone;
    for (const auto &task : std::filesystem::directory_iterator("/proc/self/task", gone)) {
        std::string stat;
        std::getline(std::ifstream(task.path() / "stat") >> std::ws, stat);
        const std::size_t name_end = stat.rfind(") ");
        if (task.path().filename() != self && name_end != std::string::npos && stat[name_end + 2] != 'S') {
            return false;
        }
    }
    return true;
}

// AddressSanitizer does not hold its locks while a process forks. A thread of the pool that is only starting,
// and allocates, would leave one locked in the child for ever.
inline pid_t fork_at_rest() {
    while (!others_sleep()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return fork();
}
