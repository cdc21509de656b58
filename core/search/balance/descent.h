// Single moves downhill from one placement of supernodes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "search/balance/stopper.h"
#include "search/balance/supernodes.h"

namespace stead {

/// Where one descent ends.
struct DescentEnd {
    std::vector<DeviceIndex> devices;  // [supernode]
    Ticks ticks = impossible;           // its largest load; `impossible` where a tensor has no way
    std::int64_t moves = 0;             // that were tried
};

/// Makes the best move to one of the devices `targets`, as bits, while it gains more than `least_gain` of the value.
DescentEnd descend_from(const Supernodes& nodes, std::span<const DeviceIndex> start, std::uint64_t targets,
                        double least_gain, std::int64_t moves, Stopper& stopper);

}  // namespace stead
