// Simulates one placement and keeps everything that can be known about the run.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/placement.h"
#include "base/problem.h"
#include "sim/memory.h"
#include "sim/policies/engine.h"
#include "sim/sending.h"

namespace stead {

/// The start of a run: nothing made the operator wait.
inline constexpr std::int32_t no_cause = std::numeric_limits<std::int32_t>::min();
/// The transfer began when its producer finished.
inline constexpr std::int32_t caused_by_producer = -1;

/// One run in full. When the placement cannot run at all, `obstacle` says why and everything else is empty.
struct Schedule {
    Obstacle obstacle;
    Status status = Status::ok;
    Ticks makespan = -1;
    std::vector<DeviceIndex> placement;  // [operator]
    Run run;
    std::vector<std::int32_t> transfer_source;   // [transfer]
    std::vector<std::int32_t> transfer_channel;  // [transfer]; as the caller numbers channels, `no_channel` or `by_sender`
    std::vector<std::int32_t>
        operator_cause;  // [operator]; the tensor whose arrival set the start, -1 - u for "operator u
                         // ran until then on the device", or no_cause
    std::vector<std::int32_t> transfer_cause;  // [transfer]; the one before on the channel or by the sender, or caused_by_producer
    std::vector<Peak> peaks;                   // [device]
    std::vector<std::int64_t> weights;         // [device]; bytes
    std::int32_t tensors = 0;                  // of the problem
};

Schedule simulate(const Problem& problem, std::span<const DeviceIndex> placement, Policy policy, const Orders& orders,
                  bool sends, MemoryMode memory);

/// The bytes on every device over the run of `schedule`, which was made from the same problem and placement.
std::vector<Curve> memory_curves(const Problem& problem, std::span<const DeviceIndex> placement,
                                 const Schedule& schedule);

}  // namespace stead
