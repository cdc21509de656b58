// Sums that must not overflow, whatever the placement.
#pragma once

#include <cstdint>

#include "base/problem.h"

namespace stead {

/// `ticks` as an integer, ties to even, but at most 2^62: more is refused later, with a name.
Ticks saturating_round(double ticks);

/// The end of the longest conceivable schedule; throws std::invalid_argument from 2^62 picoseconds (53 days) on.
Ticks find_horizon(const Problem& problem);

/// The same check when tensors pass host memory: one write, and one read per reader.
void check_host_horizon(const Problem& problem);

/// The bytes of everything at once on one device; throws std::invalid_argument from 2^62 on.
std::int64_t all_bytes(const Problem& problem);

}  // namespace stead
