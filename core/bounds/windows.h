// Windows: operators that can neither start before a moment nor be followed by less than some time share the rest.
#pragma once

#include <cstdint>
#include <span>

#include "base/problem.h"
#include "bounds/area.h"

namespace stead {

struct WindowOptions {
    std::span<const std::int64_t> bytes;   // [operator]; its share of weights
    std::span<const std::int32_t> repeat;  // [operator]; how often it runs per step
    int reach = 0;  // operators to look back at and ahead to from every one; 0: path lengths alone
};

struct WindowBounds {
    Ticks path = 0;    // through one operator: what lies before, itself, what lies behind
    Ticks window = 0;  // a + b + the area of all operators with head >= a and tail >= b
    Ticks head = 0;    // the best a
    Ticks tail = 0;    // the best b
};

/// Lower bounds on the length of a step, whatever the placement and the order.
///
/// With h(v) the earliest start of v and q(v) the least time after its finish, all v with h(v) >= a and q(v) >= b run
/// between a and T - b. For prices y, z as in `area`
///     (T - a - b) * sum y >= sum over these v of min over d of (y[d] repeat(v) work(v, d) + z[d] bytes(v))
///                            + sum over the others of min over d of z[d] bytes(v) - sum of z[d] capacity[d].
/// The best pair (a, b) is found for every pair of prices by a sweep, and better prices for the best pair, in turn.
/// A watch that stops leaves what has been found until then.
WindowBounds window_bounds(const Problem& problem, const WindowOptions& options, Watch& watch);

}  // namespace stead
