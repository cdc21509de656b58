// When a search on several threads ends, and the threads it runs on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>

#include "base/workers.h"

namespace stead {

constexpr std::int64_t moves_between_polls = 4096;

/// Tells the threads of one search when to stop.
class Stopper {
public:
    Stopper(double seconds, const Workers& workers);

    /// Asked by every thread now and then; the calling thread also looks for interrupts.
    bool stop();
    void stop_now() { stopped_ = true; }

private:
    using Clock = std::chrono::steady_clock;

    std::function<bool()> interrupted_;
    std::thread::id caller_;
    std::optional<Clock::time_point> deadline_;
    Clock::time_point last_ = Clock::now();
    std::atomic<bool> stopped_ = false;
};

/// Runs work(0) .. work(items - 1) on threads, in order; an interrupt ends it like the clock does.
void run_items(std::int64_t items, const Workers& workers, Stopper& stopper,
               const std::function<void(std::int64_t)>& work);

}  // namespace stead
