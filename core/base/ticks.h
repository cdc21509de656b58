// The one clock: whole picoseconds.
#pragma once

#include <cstdint>
#include <limits>

namespace stead {

/// Time in picoseconds. Integers make sums exact and independent of their order.
using Ticks = std::int64_t;

inline constexpr Ticks never = std::numeric_limits<Ticks>::max();

/// Stands for "cannot run there" in durations and for "unreachable" in latencies.
inline constexpr Ticks impossible = -1;

inline constexpr double ticks_per_second = 1e12;
inline constexpr double seconds_per_tick = 1e-12;

}  // namespace stead
