// A list scheduler that can learn: a walk over operators in the order of a priority, devices by weighed features.
//
// An operator that is ready has a priority: its upward rank plus weighed features. The first operator of a unit chooses
// its device by
//     logit(d) = - folds((value(d) - least value) / scale) + weights . features(d) + opinion(unit, d),
// in which value is what HEFT compares: the finish, with transfers and later work weighed as the variant says. Devices
// without room are left out as in list scheduling. Opinions come from outside, such as from a network; without any, or
// with zeros, a rule whose weights are all zero *is* HEFT, to the bit.
//
// A walk may go on from a schedule that is there, its guide: ranks are then those of the guide, and the value of a device
// takes into account what lies behind the operator where the guide has its readers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/workers.h"
#include "build/guide.h"
#include "build/walk_features.h"
#include "build/walk_tables.h"

namespace stead {

/// How one walk goes, apart from the weights of its rule.
struct WalkVariant {
    double bias = 1.0;                // weight of a transfer in the value of a device
    double foresight = 0.0;           // weight of what units on a device still have to run
    Average average = Average::mean;  // of the ranks
    double noise = 0.0;               // of random numbers that are added to logits
    std::uint64_t seed = 0;           // of these numbers
    bool retime = false;              // try two orders by ranks at the chosen devices, too; keep the best one
    std::int32_t rule = 0;            // the row of its weights
    std::int32_t opinion = none;      // the row of the opinions that are added to logits
    std::int32_t guide = none;        // the schedule that it goes on from; the rest is for those that have one
    double tail = 0.0;                // weight of the longest way behind an operator in the value of a device
    double cling = 0.0;               // added to the logit of the device that the guide has

    static constexpr std::int32_t none = -1;
};

struct Walk {
    std::vector<DeviceIndex> devices;  // [operator]
    std::vector<std::int32_t> order;    // operators, topological
    Ticks ticks = -1;                   // length when operators run in this order; -1 if the placement cannot run
    std::int64_t over_bytes = 0;        // what devices lack at their peaks, all together; at least
    int simulations = 0;
    bool retimed = false;               // the order is one by ranks at the chosen devices

    static constexpr Ticks not_built = -2;  // time was up before; devices and order mean nothing then
};

/// A walk for each variant by the rule, the opinions and the guide that it names. `weights` [rule, rule_weights];
/// `opinions` [row, unit, device]; `limit_bytes` [device] is what weights and long-lived tensors may take. The same for
/// any number of threads. What is not finished after so many seconds is not built.
std::vector<Walk> walks(const WalkTables& tables, std::span<const double> weights, std::span<const double> opinions,
                        std::span<const Guide> guides, std::span<const WalkVariant> variants,
                        std::span<const std::int64_t> limit_bytes, double seconds, const Workers& workers);

}  // namespace stead
