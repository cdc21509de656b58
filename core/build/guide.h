// What a schedule that is there says to walks that go on from it: how urgent operators were, and what leaving costs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "build/walk_tables.h"

namespace stead {

/// Time from the start of each operator to the end of the graph at the devices they are on; no operator waits for a
/// device. [operator]
std::vector<double> placed_ranks(const Problem& problem, std::span<const DeviceIndex> devices);

/// The same where operators wait for devices: each starts as late as it may when the schedule is run from its end.
/// `order` is that of the schedule. [operator]
std::vector<double> busy_ranks(const Problem& problem, std::span<const DeviceIndex> devices,
                               std::span<const std::int32_t> order);

/// A schedule, as a walk over the units of `tables` looks at it.
class Guide {
public:
    /// Throws std::invalid_argument unless the devices can run the problem and the order is topological.
    Guide(const WalkTables& tables, std::span<const DeviceIndex> devices, std::span<const std::int32_t> order);

    int device(std::int32_t v) const { return devices_[v]; }
    /// Time from the start of each operator to the end of the graph, waiting included. [operator]
    const std::vector<double>& rank() const { return busy_; }

    /// The longest way from the end of v to the end of the graph if v ran on d and its readers stayed where they are.
    double behind(std::int32_t v, int d) const;

private:
    const WalkTables& tables_;
    const std::vector<DeviceIndex> devices_;   // [operator]
    const std::vector<double> placed_, busy_;  // [operator]; ranks
};

}  // namespace stead
