// Local search for the latency of dataflow execution, on (devices, order) together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/problem.h"
#include "base/workers.h"
#include "search/climber.h"
#include "search/resident.h"
#include "search/trail.h"

namespace stead {

/// States to start from, one per row.
struct SearchStarts {
    std::int64_t rows = 0;
    std::span<const DeviceIndex> devices;  // [start, operator]
    std::span<const std::int32_t> orders;   // [start, operator]; topological
    std::span<const std::uint8_t> sends;    // [start]; as in Sends
};

struct SearchOptions {
    std::int64_t budget = 0;  // work: operators decoded, and moves; from 2^61 on, only the clock counts
    double seconds = 0.0;     // wall time; a limit by time alone is not repeatable
    std::uint64_t seed = 0;
    int streams = 2;        // work items that go on to the end; several may share a start
    int rounds = 8;         // after each, the worse half of the items is given up or goes on from the better half
    int pool = 8;           // states returned at most
    bool climbs = false;    // annealing only where climbing has stalled, else in every other round
    double warmth = 0.002;  // temperature of annealing in the first round, as a share of the makespan
};

struct SearchResult {
    std::vector<SearchState> pool;  // distinct, best first
    std::int64_t moves = 0;
    std::int64_t work = 0;
    std::vector<TrailPoint> trail;  // [round]
    std::vector<MoveTally> kinds;   // [kind of move]
};

/// Improves the starts. The result depends on the number of threads only where time runs out; the best start is never
/// lost. An interrupt ends it like the clock does, once the starts are there. Units share a device in every start; what a device holds never exceeds the limits where a start respects them.
SearchResult search(const Problem& problem, std::span<const std::int32_t> unit_of, const SearchStarts& starts,
                    ResidentLimits limits, const SearchOptions& options, const Workers& workers);

}  // namespace stead
