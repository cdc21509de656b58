// When to stop a long search: out of time, out of another limit, or interrupted.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "base/workers.h"

namespace stead {

enum class Stop : std::uint8_t { none, bytes, pairs, time };

/// Shared by the threads of a search.
class Watch {
public:
    Watch(double seconds, const Workers& workers) : interrupted_(workers.interrupted), seconds_(seconds) {}

    bool stopped() const { return stopped_.load(std::memory_order_relaxed); }
    Stop reason() const { return reason_; }

    /// The first reason stays.
    void stop(Stop reason) {
        const std::lock_guard lock(mutex_);
        if (!stopped_) reason_ = reason;
        stopped_ = true;
    }

    /// Stops when time is up; throws Interrupted on the thread that made the watch, the only one that may ask.
    void poll() {
        const auto now = Clock::now();
        if (std::chrono::duration<double>(now - start_).count() >= seconds_) stop(Stop::time);
        if (std::this_thread::get_id() != owner_ || !interrupted_ || now - asked_ < ask_interval) return;
        asked_ = now;
        if (!interrupted_()) return;
        stop(Stop::time);  // for the other threads
        throw Interrupted{};
    }

private:
    using Clock = std::chrono::steady_clock;
    static constexpr auto ask_interval = std::chrono::milliseconds(20);  // asking may take a lock

    std::function<bool()> interrupted_;
    double seconds_;
    std::thread::id owner_ = std::this_thread::get_id();
    Clock::time_point start_ = Clock::now(), asked_ = start_;
    std::mutex mutex_;
    std::atomic<bool> stopped_ = false;
    Stop reason_ = Stop::none;
};

/// Polls a watch now and then, on one thread.
class Pace {
public:
    explicit Pace(Watch& watch) : watch_(watch) {}

    /// So many small steps were done.
    void count(std::int64_t steps) {
        if ((steps_ += steps) < interval) return;
        steps_ = 0;
        watch_.poll();
    }

private:
    static constexpr std::int64_t interval = 1 << 16;

    Watch& watch_;
    std::int64_t steps_ = 0;
};

}  // namespace stead
