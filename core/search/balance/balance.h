// Searches for a placement of supernodes whose largest load is least, without any rule about contiguity: annealing, and
// descent to a placement that no single move betters.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/workers.h"
#include "search/balance/supernodes.h"
#include "search/trail.h"

namespace stead {

/// Placements of supernodes, one per row.
struct Starts {
    const DeviceIndex* data = nullptr;
    std::int64_t rows = 0;
};

/// When a search ends. Only a limit in moves gives the same answer again.
struct SearchLimits {
    std::int64_t moves = 0;  // tried, over all chains
    double seconds = 0.0;    // infinity: none
};

/// The best placement that a search has met.
struct Balanced {
    std::vector<DeviceIndex> devices;  // [supernode]
    Ticks ticks = impossible;           // its largest load; `impossible` if none fits its memory and has a way for every tensor
    std::int64_t moves = 0;             // that were tried
    std::vector<TrailPoint> trail;      // whenever the largest load fell
};

/// Where descents end, one per start.
struct Descents {
    std::int32_t supernodes = 0;
    std::vector<DeviceIndex> devices;  // [start, supernode]
    std::vector<Ticks> ticks;           // [start]; `impossible` where a tensor has no way
    std::vector<std::int64_t> moves;    // [start]; that were tried
};

/// Anneals max(restarts, starts.rows) chains of equal length, the first ones from the given starts, the others from
/// balanced and random placements in turn. Chains are independent of each other, and the answer does not depend on the
/// number of threads.
Balanced balance(const Supernodes& nodes, const Starts& starts, int restarts, std::uint64_t seed,
                 const SearchLimits& limits, const Workers& workers);

/// Makes the best single move to one of the devices `targets` [device] as long as it lowers the value by more than
/// `least_gain` of it, from every start by itself. Memory is ignored.
Descents descend(const Supernodes& nodes, const Starts& starts, std::span<const std::uint8_t> targets,
                 double least_gain, const SearchLimits& limits, const Workers& workers);

}  // namespace stead
