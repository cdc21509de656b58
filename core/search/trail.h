// How a search came to what it found.
#pragma once

#include <cstdint>

#include "base/problem.h"

namespace stead {

/// The best value after so much work (local search), or when so many moves had been tried (annealing).
struct TrailPoint {
    std::int64_t spent = 0;
    Ticks ticks = never;
};

}  // namespace stead
