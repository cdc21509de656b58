// Work spread over devices as well as memory lets it be: a linear program, bounded by its dual.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bounds/heads_and_tails.h"

namespace stead {

/// Work that can be cut into pieces. Nothing is owned.
struct Work {
    std::size_t rows = 0;
    int devices = 0;
    std::span<const Ticks> ticks;                  // [row, device]; `impossible` where it may not run
    std::span<const std::int64_t> bytes;           // [row]; what it brings to the memory of its device
    std::span<const std::int64_t> capacity_bytes;  // [device]
    std::span<const std::uint8_t> busy;            // [device]; 0: does any amount of work at a time
};

/// A value and what proves it: whoever doubts it puts the prices into the formula of `area`.
struct Proof {
    Ticks ticks = 0;
    Prices prices;
};

/// A lower bound on T = max over busy d of the work on d, when every row is shared out among devices and bytes fit.
///
/// For all prices y >= 0 of time on busy devices and z >= 0 of memory
///     T * sum y >= sum over rows of min over d of (y[d] ticks[row, d] + z[d] bytes[row]) - sum of z[d] capacity[d].
/// Good prices are searched for in floating point, devices that cannot be told apart having one price; the value is
/// then computed from whole-numbered prices without rounding. `with_memory` false leaves z at 0.
Proof area(const Work& work, bool with_memory, Watch* watch = nullptr);

/// A lower bound on the sum over rows of the ticks where each row is, when bytes fit: time costs 1 on every device.
Ticks least_total(const Work& work, Watch* watch = nullptr);

/// The right-hand side of the formula of `area`, exactly.
Wide value_of(const Work& work, const Prices& prices);

}  // namespace stead
