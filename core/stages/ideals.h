// The best split into contiguous stages, by dynamic programming over ideals (Tarnawski et al., "Efficient Algorithms
// for Device Placement of DNN Graph Operators", NeurIPS 2020).
//
// State: an ideal and the devices of each kind used so far. From each ideal all stages that can follow are walked, with
// their cut kept up to date node by node. Only chains below a cutoff are followed, and only ideals from which the rest
// can still fit are stored, so that most ideals are never met and no pair of them takes memory.
#pragma once

#include <cstdint>

#include "base/watch.h"
#include "base/workers.h"
#include "stages/growing_stage.h"
#include "stages/stages.h"

namespace stead {

struct IdealsLimits {
    Ticks cutoff = never;  // only splits below it count
    std::int64_t max_bytes = never;
    std::int64_t max_pairs = never;
    double seconds = 0;
};

struct IdealsRun {
    Stop stop = Stop::none;   // the limit that ended the search early
    Ticks bound = 0;          // no split is below this
    StageSplit split = {};    // the best one found; the best of all below the cutoff if nothing stopped the search
    std::int64_t ideals = 0;  // stored
    std::int64_t pairs = 0;   // of an ideal and a stage that was tried after it
    std::int64_t bytes = 0;
};

/// Unless bytes or time run out, the answer does not depend on the number of threads. Throws Interrupted.
IdealsRun find_ideals(const Stages& stages, const StagePrices& prices, const IdealsLimits& limits,
                      const Workers& workers);

}  // namespace stead
