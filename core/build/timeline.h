// Devices, channels and tensors in time while a schedule grows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/problem.h"
#include "build/list_tables.h"

namespace stead {

/// What it means to run an operator on one device next.
struct Offer {
    Ticks ready = 0;     // the last of its inputs is there
    Ticks start = 0;
    Ticks finish = 0;
    Ticks moved = 0;     // length of all transfers it would need, one after another
    bool possible = true;  // every tensor has a way to the device
};

/// Idle time of one device: gaps between operators, and everything behind the last one.
class IdleTime {
public:
    Ticks end() const { return end_; }

    /// The earliest start at or after `ready` for something that lasts `length`.
    Ticks earliest(Ticks ready, Ticks length, bool fill_gaps) const {
        if (!fill_gaps || ready >= end_) return std::max(ready, end_);
        std::size_t i = first_ending_behind(ready);
        const std::size_t last = std::min(gaps_.size(), i + most_looked_at);
        for (; i < last; ++i) {
            const Ticks start = std::max(ready, gaps_[i].begin);
            if (start + length <= gaps_[i].end) return start;
        }
        return end_;
    }

    /// Takes [start, finish), which earliest() found.
    void take(Ticks start, Ticks finish) {
        if (start >= end_) {
            if (start > end_) gaps_.push_back({end_, start});
            end_ = finish;
            return;
        }
        if (start == finish) return;
        const std::size_t i = first_ending_behind(start);
        Gap& gap = gaps_[i];
        const Gap rest = {finish, gap.end};
        if (gap.begin < start) {
            gap.end = start;
            if (rest.begin < rest.end) gaps_.insert(gaps_.begin() + static_cast<std::ptrdiff_t>(i) + 1, rest);
        } else if (rest.begin < rest.end) {
            gap = rest;
        } else {
            gaps_.erase(gaps_.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }

    /// Puts off all that comes behind by `length`.
    void delay(Ticks length) { end_ += length; }

private:
    struct Gap {
        Ticks begin, end;
    };
    static constexpr std::size_t most_looked_at = 256;  // long schedules have thousands of gaps that are too short

    std::size_t first_ending_behind(Ticks time) const {
        const auto found =
            std::upper_bound(gaps_.begin(), gaps_.end(), time, [](Ticks x, const Gap& gap) { return x < gap.end; });
        return static_cast<std::size_t>(found - gaps_.begin());
    }

    std::vector<Gap> gaps_;  // rising, apart from each other
    Ticks end_ = 0;
};

/// The schedule so far.
class Timeline {
public:
    Timeline(const ListTables& tables, bool fill_gaps);

    /// What running `v` on `d` next would mean. Its producers have run.
    Offer offer(std::int32_t v, int d);
    /// Runs `v` on `d` as offer() says.
    void run(std::int32_t v, int d);

    Ticks device_end(int d) const { return idle_[d].end(); }
    int device(std::int32_t v) const { return device_[v]; }

    /// Operators by start, those that start together as they were run: a topological order.
    std::vector<std::int32_t> order() const;
    const std::vector<DeviceIndex>& devices() const { return device_; }

private:
    /// Arrival of `t` at `d`, counted into `offer`. Bookings of an offer are tentative until it is run.
    Ticks arrival(std::int32_t t, int d, Offer& offer);
    /// A device that carries tensor `t` to `d` itself has that much less time for what it runs next.
    void carry(std::int32_t t, const Link& way);

    const ListTables& tables_;
    const Problem& problem_;
    const bool fill_gaps_;
    std::vector<IdleTime> idle_;                 // [device]
    std::vector<Ticks> at_;                      // [tensor, device]; -1 where it is not
    std::vector<Ticks> carried_;                 // [tensor]; what its sender has spent on it, if devices carry
    std::vector<Ticks> channel_free_;            // [channel]
    std::vector<Ticks> tentative_free_;          // [channel], where tentative_turn_ is the present turn
    std::vector<std::int64_t> tentative_turn_;   // [channel]
    std::int64_t turn_ = 0;
    std::vector<DeviceIndex> device_;           // [operator]
    std::vector<Ticks> start_;                   // [operator]
    std::vector<std::int32_t> sequence_;         // operators as they were run
};

}  // namespace stead
