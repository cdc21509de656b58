// Bytes that stay on each device: weights, counted once per device, and what operators hold.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/problem.h"
#include "base/rows.h"
#include "base/weight_users.h"

namespace stead {

/// Limits of what stays on each device.
struct ResidentLimits {
    std::vector<std::int64_t> held_bytes;  // [operator]; stays where the operator is
    std::vector<std::int64_t> room_bytes;  // [device]; for weights and what is held
};

/// Which weights each operator uses.
struct WeightTables {
    WeightTables(const Problem& problem, const ResidentLimits& limits);
    Rows used;   // [operator]; weights
    bool ample;  // no placement can exceed any limit
};

/// Counts what stays on each device while operators move.
class Resident {
public:
    Resident(const Problem& problem, const WeightTables& tables, const ResidentLimits& limits);

    void load(const DeviceIndex* placement);
    void move(std::int32_t v, int from, int to);
    /// Bytes above the limits, all devices together.
    std::int64_t overflow() const;

private:
    void add(std::int32_t v, int d);
    void remove(std::int32_t v, int d);

    const Problem& problem_;
    const WeightTables& tables_;
    const ResidentLimits& limits_;
    WeightUsers users_;
    std::vector<std::int64_t> bytes_;  // [device]
};

}  // namespace stead
