#include "search/balance/stopper.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <mutex>
#include <vector>

#include "base/fail.h"

namespace stead {
namespace {

constexpr auto interrupt_interval = std::chrono::milliseconds(20);

}  // namespace

Stopper::Stopper(double seconds, const Workers& workers)
    : interrupted_(workers.interrupted), caller_(std::this_thread::get_id()) {
    if (std::isnan(seconds) || seconds < 0) fail("seconds must be at least 0, got ", seconds);
    if (seconds >= 1e9) return;  // further than the clock may count
    const std::chrono::duration<double> allowed(seconds);
    deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(allowed);
}

bool Stopper::stop() {
    if (stopped_) return true;
    const auto now = Clock::now();
    if (deadline_ && now >= *deadline_) return stopped_ = true;
    if (interrupted_ && std::this_thread::get_id() == caller_ && now - last_ >= interrupt_interval) {
        last_ = now;
        if (interrupted_()) stopped_ = true;
    }
    return stopped_;
}

void run_items(std::int64_t items, const Workers& workers, Stopper& stopper,
               const std::function<void(std::int64_t)>& work) {
    const std::int64_t threads = thread_count(workers, items);
    std::atomic<std::int64_t> next = 0, done = 0;
    std::mutex mutex;
    std::exception_ptr error;
    const auto take_items = [&] {
        for (std::int64_t i = next++; i < items; i = next++) {
            try {
                work(i);
            } catch (...) {
                const std::lock_guard lock(mutex);
                if (!error) error = std::current_exception();
                stopper.stop_now();
            }
            ++done;
        }
    };
    {
        std::vector<std::jthread> others;
        for (std::int64_t i = 1; i < threads; ++i) others.emplace_back(take_items);
        take_items();
        while (done < items) {  // others are still at work: go on looking for interrupts
            stopper.stop();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    if (error) std::rethrow_exception(error);
}

}  // namespace stead
