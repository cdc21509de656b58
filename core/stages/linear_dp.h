// The best split of one linear order into stages: the dynamic program over ideals restricted to prefixes of the order.
#pragma once

#include <cstdint>
#include <span>

#include "base/workers.h"
#include "stages/growing_stage.h"
#include "stages/stages.h"

namespace stead {

struct LinearLimits {
    Ticks cutoff = never;  // only splits below it count
    double seconds = 0;    // when they have passed, there is no split
};

/// `order` must list all nodes so that none comes before a predecessor. The cutoff is raised step by step until there
/// is a split, so that only stages not much longer than those of the answer are looked at. Throws Interrupted.
StageSplit find_linear_split(const Stages& stages, const StagePrices& prices, std::span<const std::int32_t> order,
                             const LinearLimits& limits, const Workers& workers);

}  // namespace stead
