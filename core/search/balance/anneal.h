// Annealing of one placement of supernodes.
#pragma once

#include <cstdint>
#include <span>

#include "base/rng.h"
#include "search/balance/balance.h"
#include "search/balance/stopper.h"
#include "search/balance/supernodes.h"

namespace stead {

/// One chain from `start`, so many moves long; chains of different numbers begin and cool differently.
Balanced anneal(const Supernodes& nodes, std::int64_t number, Rng rng, std::span<const DeviceIndex> start,
                std::int64_t moves, Stopper& stopper);

}  // namespace stead
