// Threads that compute or copy: made once per process, shared by all callers, who are served in the order in which
// they came.
#pragma once

#include <cstddef>
#include <functional>

namespace unstarve {

// Copying is short, and may start what storage then works on: it neither waits for computing nor helps with it.
enum class WorkKind : std::size_t { computing, copying };

// Calls `work` once for each of the numbers 0 … count - 1, on this thread and on others, and returns when all are
// done. While an earlier caller's numbers are left, they come first, and this thread takes part in them: what was
// asked for first is finished first, whoever asks, and `threads` is for all callers of a kind together. With one
// thread the caller does its own and nothing else. If `work` throws, the numbers left are dropped, and the first
// exception is thrown here.
void run_in_order(unsigned threads, std::size_t count, const std::function<void(std::size_t)> &work,
                  WorkKind kind = WorkKind::computing);

}  // namespace unstarve
