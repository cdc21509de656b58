// Steady-state loads: how long each device computes, receives and sends per sample. Pipelined throughput is bound by the
// busiest device.
#pragma once

#include <cstdint>

#include "base/placement.h"
#include "base/problem.h"

namespace stead {

/// Loads of one placement, borrowed from the caller: each [device, 2], forward then backward. Updates count as
/// backward, a tensor as its producer's phase.
struct Loads {
    Ticks* compute;
    Ticks* received;
    Ticks* sent;
};

/// Fills `loads` with those of `placement`, or with -1 when it cannot run. A tensor that is read on other devices
/// crosses once per device; when traffic passes host memory, it is written once by its producer's device and read once
/// by each other device, and devices that compute in host memory pay nothing.
Status find_loads(const Problem& problem, const DeviceIndex* placement, const Loads& loads);

}  // namespace stead
