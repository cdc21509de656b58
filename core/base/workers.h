// Threads that share the rows of one job.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace stead {

/// How a batch runs.
struct Workers {
    int threads = 0;                    // 0: all cores
    std::function<bool()> interrupted;  // asked now and then, on the calling thread only; may be empty
};

/// Thrown by a batch that was interrupted.
struct Interrupted {};

/// Threads for so many tasks; throws std::invalid_argument if a negative number is wanted.
std::int64_t thread_count(const Workers& workers, std::int64_t tasks);

/// Calls one task per thread for rows of a batch: make_task() is called once on each thread and returns what scores a
/// row, with its own memory. Rows are taken in chunks in order; rows that take long want short ones. Of errors, that of
/// the first row is rethrown with its number; Interrupted is thrown when `workers.interrupted` says so.
using RowTask = std::function<void(std::int64_t row)>;
void run_rows(std::span<const std::int64_t> rows, const Workers& workers, const std::function<RowTask()>& make_task,
              std::int64_t chunk = 16);

}  // namespace stead
