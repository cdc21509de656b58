// What annealing lowers.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "search/balance/moving_loads.h"

namespace stead {

/// Nearly the largest load, plus penalties for what may not be.
///
/// The sum over devices and lanes of (load / best value so far)^16 is nearly the largest load but also tells the second
/// largest; a lower power tells more of what all devices do together. Powers of 2 need multiplications and square roots
/// only, which are exact everywhere.
class Score {
public:
    Score(const Supernodes& nodes, const MovingLoads& loads)
        : nodes_(nodes), loads_(loads), powers_(nodes.devices), penalties_(nodes.devices, 0.0) {}

    /// Starts again with loads relative to `reference`.
    void reset(Ticks reference) {
        scale_ = 1.0 / static_cast<double>(std::max<Ticks>(reference, 1));
        score_all();
    }

    /// Goes on with loads to the power of 2^squarings.
    void sharpen(int squarings) {
        squarings_ = squarings;
        score_all();
    }

    double now() const { return now_; }

    /// The score after the move that the loads consider.
    double considered() const {
        Powers total = total_;
        double penalty_sum = penalty_sum_;
        for (std::uint64_t left = loads_.touched(); left != 0; left &= left - 1) {
            const int d = std::countr_zero(left);
            const Powers fresh = powers(loads_.new_lanes(d));
            for (int lane = 0; lane < max_lanes; ++lane) total[lane] += fresh[lane] - powers_[d][lane];
            if (loads_.new_bytes(d) != loads_.bytes(d)) penalty_sum += penalty(d, loads_.new_bytes(d)) - penalties_[d];
        }
        return combined(total, penalty_sum, loads_.new_blocked());
    }

    /// Takes over what the loads have just committed.
    void update(std::uint64_t touched) {
        for (; touched != 0; touched &= touched - 1) {
            const int d = std::countr_zero(touched);
            powers_[d] = powers(loads_.lanes(d));
            penalties_[d] = penalty(d, loads_.bytes(d));
        }
        add_up();
    }

    bool valid() const { return penalty_sum_ == 0.0 && loads_.blocked() == 0; }

private:
    using Powers = std::array<double, max_lanes>;

    static constexpr double overfull_penalty = 10.0;
    static constexpr double overfull_slope = 100.0;
    static constexpr double blocked_penalty = 1000.0;

    double power(double x) const {
        for (int i = 0; i < squarings_; ++i) x *= x;
        return x;
    }
    double root(double x) const {
        for (int i = 0; i < squarings_; ++i) x = std::sqrt(x);
        return x;
    }

    void score_all() {
        for (int d = 0; d < nodes_.devices; ++d) {
            powers_[d] = powers(loads_.lanes(d));
            penalties_[d] = penalty(d, loads_.bytes(d));
        }
        add_up();
    }

    Powers powers(const Lanes& lanes) const {
        Powers result;
        for (int lane = 0; lane < max_lanes; ++lane) result[lane] = power(static_cast<double>(lanes[lane]) * scale_);
        return result;
    }

    double penalty(int d, std::int64_t bytes) const {
        const std::int64_t room = nodes_.room_bytes[d];
        if (bytes <= room) return 0.0;
        return overfull_penalty + overfull_slope * static_cast<double>(bytes - room) / static_cast<double>(room + 1);
    }

    double combined(const Powers& total, double penalties, std::int64_t blocked) const {
        const double loads = nodes_.load == LoadKind::fwbw
                                 ? power(root(std::max(total[0], 0.0)) + root(std::max(total[1], 0.0)))
                                 : total[0] + total[1] + total[2];
        return loads + penalties + blocked_penalty * static_cast<double>(blocked);
    }

    /// Sums afresh, so that rounding errors do not pile up.
    void add_up() {
        total_ = {};
        penalty_sum_ = 0.0;
        for (int d = 0; d < nodes_.devices; ++d) {
            for (int lane = 0; lane < max_lanes; ++lane) total_[lane] += powers_[d][lane];
            penalty_sum_ += penalties_[d];
        }
        now_ = combined(total_, penalty_sum_, loads_.blocked());
    }

    const Supernodes& nodes_;
    const MovingLoads& loads_;
    double scale_ = 1.0;
    int squarings_ = 4;  // of loads
    std::vector<Powers> powers_;     // [device]
    std::vector<double> penalties_;  // [device]
    Powers total_ = {};
    double penalty_sum_ = 0.0, now_ = 0.0;
};

}  // namespace stead
