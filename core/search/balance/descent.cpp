#include "search/balance/descent.h"

#include <bit>
#include <limits>
#include <utility>

#include "search/balance/moving_loads.h"

namespace stead {
namespace {

class Descent {
public:
    Descent(const Supernodes& nodes, std::uint64_t targets, double least_gain)
        : nodes_(nodes), loads_(nodes), targets_(targets), least_gain_(least_gain) {}

    DescentEnd run(std::span<const DeviceIndex> start, std::int64_t moves, Stopper& stopper) {
        loads_.place(start);
        DescentEnd found;
        while (find_best(moves, stopper, found) && is_gain()) {
            loads_.consider(best_node_, best_device_);
            loads_.commit();
        }
        found.devices.assign(loads_.devices().begin(), loads_.devices().end());
        if (loads_.blocked() == 0) found.ticks = loads_.value();
        return found;
    }

private:
    /// Looks at every single move for the best one; false if a limit came first.
    bool find_best(std::int64_t moves, Stopper& stopper, DescentEnd& found) {
        best_blocked_ = std::numeric_limits<std::int64_t>::max();
        for (std::int32_t v = 0; v < nodes_.count(); ++v)
            for (std::uint64_t left = targets_ & nodes_.allowed[v]; left != 0; left &= left - 1) {
                const int d = std::countr_zero(left);
                if (d == loads_.device(v)) continue;
                if (found.moves == moves || (found.moves % moves_between_polls == 0 && stopper.stop())) return false;
                ++found.moves;
                loads_.consider(v, d);
                const std::int64_t blocked = loads_.new_blocked();
                const Ticks value = loads_.new_value();
                if (std::pair(blocked, value) >= std::pair(best_blocked_, best_value_)) continue;
                best_blocked_ = blocked;
                best_value_ = value;
                best_node_ = v;
                best_device_ = d;
            }
        return best_blocked_ != std::numeric_limits<std::int64_t>::max();
    }

    bool is_gain() const {
        if (best_blocked_ != loads_.blocked()) return best_blocked_ < loads_.blocked();
        const auto now = static_cast<double>(loads_.value());
        return now - static_cast<double>(best_value_) > least_gain_ * now;
    }

    const Supernodes& nodes_;
    MovingLoads loads_;
    std::uint64_t targets_;
    double least_gain_;
    std::int64_t best_blocked_ = 0;
    Ticks best_value_ = 0;
    std::int32_t best_node_ = 0;
    int best_device_ = 0;
};

}  // namespace

DescentEnd descend_from(const Supernodes& nodes, std::span<const DeviceIndex> start, std::uint64_t targets,
                        double least_gain, std::int64_t moves, Stopper& stopper) {
    return Descent(nodes, targets, least_gain).run(start, moves, stopper);
}

}  // namespace stead
