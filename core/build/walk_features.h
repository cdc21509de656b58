// How a walk stands, and what a rule sees of it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "build/free_memory.h"
#include "build/timeline.h"
#include "build/walk_tables.h"

namespace stead {

/// What a rule sees of a device when a unit is placed, and of an operator when it becomes ready. Docs list them.
inline constexpr int device_features = 27;
inline constexpr int queue_features = 12;

/// Numbers that say how a rule decides. For devices a row of features for "always" and one for each context, those of
/// the problem first; then the same for the queue, for contexts of the problem alone.
inline constexpr int device_rows = 1 + graph_contexts + unit_contexts;
inline constexpr int queue_rows = 1 + graph_contexts;
inline constexpr int rule_weights = device_rows * device_features + queue_rows * queue_features;

/// A schedule while it grows, with all that features are made of.
struct WalkState {
    WalkState(const WalkTables& tables, std::span<const std::int64_t> limit_bytes);

    /// Work that would still lie before d once `unit`, whose first operator is v, is there; 0 for a unit of one operator.
    Ticks rest(std::int32_t unit, std::int32_t v, int d) const;

    void place(std::int32_t unit, std::int32_t v, int d);
    void run(std::int32_t v, int d);

    const WalkTables& tables;
    Timeline timeline;
    Room room;
    std::span<const std::int64_t> limit_bytes;
    std::vector<int> device_of_unit;           // [unit]; -1 while it has none
    std::vector<Ticks> pending;                // [device]; work of its units that has not run yet
    std::vector<Ticks> finish;                 // [operator]
    std::vector<double> load;                  // [device]; work that has run
    std::vector<std::uint8_t> used;            // [device]
    std::vector<std::int32_t> weight_uses;     // [weight, device]; units there that use it
    double done = 0.0;                         // work that has run, at mean costs
    int last = -1;                             // the device that was chosen last
};

/// What is known of the devices that come into question for a unit.
struct Choice {
    std::int32_t v = 0, unit = 0;
    std::array<Offer, mask_devices> offer;
    std::array<double, mask_devices> value;   // what list scheduling compares
    std::array<std::uint8_t, mask_devices> open{};
    int count = 0;                           // of the open ones
};

using FeatureTable = std::array<std::array<double, mask_devices>, device_features>;  // [feature][device]

/// What one operator time is worth where v is placed.
double local_scale(const WalkTables& tables, std::int32_t v);

/// Fills the columns of open devices; features say how a device differs from the best one, or what ties the unit to it.
void describe_devices(const WalkState& state, const Choice& choice, FeatureTable& features);

std::array<double, unit_contexts> describe_unit(const WalkState& state, const Choice& choice);

std::array<double, queue_features> describe_ready(const WalkState& state, std::int32_t v);

}  // namespace stead
