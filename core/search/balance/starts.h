// Placements for chains to start from, in which everything is allowed.
#pragma once

#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "search/balance/supernodes.h"

namespace stead {

std::vector<DeviceIndex> random_start(const Supernodes& nodes, Rng& rng);

/// Supernodes in the order of their first operators, cut into pieces of about equal time; devices in random order.
std::vector<DeviceIndex> balanced_start(const Supernodes& nodes, Rng& rng);

}  // namespace stead
