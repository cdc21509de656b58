#include "base/workers.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/fail.h"

namespace stead {
namespace {

constexpr auto interrupt_interval = std::chrono::milliseconds(20);

/// What the threads of one batch share.
class SharedWork {
public:
    SharedWork(std::span<const std::int64_t> rows, std::int64_t chunk) : rows_(rows), chunk_(chunk) {}

    std::int64_t chunks() const { return (size() + chunk_ - 1) / chunk_; }

    /// Works until no chunk is left; calls `between` after each row.
    void work(const std::function<RowTask()>& make_task, const std::function<void()>& between) {
        std::int64_t row = 0;
        try {
            const RowTask task = make_task();
            while (!stopped_) {
                const std::int64_t begin = next_.fetch_add(chunk_);
                if (begin >= size()) return;
                for (std::int64_t i = begin; i < std::min(begin + chunk_, size()) && !given_up_; ++i) {
                    task(row = rows_[i]);
                    between();
                }
            }
        } catch (const Interrupted&) {
            given_up_ = true;
            keep_error(-1);
        } catch (...) {
            keep_error(row);
        }
    }

    /// Rethrows an interrupt or else the error of the first row that has one. Chunks are taken in order and finished once
    /// taken, so the number of threads does not decide which error that is.
    void rethrow() const {
        if (!error_) return;
        try {
            std::rethrow_exception(error_);
        } catch (const std::invalid_argument& error) {
            fail("row ", error_row_, ": ", error.what());
        }
    }

private:
    std::int64_t size() const { return static_cast<std::int64_t>(rows_.size()); }

    void keep_error(std::int64_t row) {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
        if (error_ && error_row_ <= row) return;
        error_ = std::current_exception();
        error_row_ = row;
    }

    std::span<const std::int64_t> rows_;
    const std::int64_t chunk_;
    std::atomic<std::int64_t> next_ = 0;
    std::atomic<bool> stopped_ = false, given_up_ = false;
    std::mutex mutex_;
    std::exception_ptr error_;
    std::int64_t error_row_ = 0;
};

/// Asks whether to stop, but not too often: asking may take a lock.
class InterruptPoll {
public:
    explicit InterruptPoll(const Workers& workers) : interrupted_(workers.interrupted) {}

    void operator()() {
        const auto now = std::chrono::steady_clock::now();
        if (!interrupted_ || now - last_ < interrupt_interval) return;
        last_ = now;
        if (interrupted_()) throw Interrupted{};
    }

private:
    std::function<bool()> interrupted_;
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace

std::int64_t thread_count(const Workers& workers, std::int64_t tasks) {
    if (workers.threads < 0) fail("threads must be 0 (all cores) or more, got ", workers.threads);
    const std::int64_t available = workers.threads > 0 ? workers.threads : std::max(1u, std::thread::hardware_concurrency());
    return std::clamp<std::int64_t>(tasks, 1, available);
}

void run_rows(std::span<const std::int64_t> rows, const Workers& workers, const std::function<RowTask()>& make_task,
              std::int64_t chunk) {
    SharedWork shared(rows, chunk);
    {
        std::vector<std::jthread> others;
        for (std::int64_t i = 1; i < thread_count(workers, shared.chunks()); ++i)
            others.emplace_back([&] { shared.work(make_task, [] {}); });
        shared.work(make_task, InterruptPoll(workers));
    }
    shared.rethrow();
}

}  // namespace stead
