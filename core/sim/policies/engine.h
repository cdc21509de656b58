// The common face of the scheduling policies.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/problem.h"
#include "sim/sending.h"

namespace stead {

enum class Policy {
    fifo,           // first come, first served
    fifo_general,   // the same by the general algorithm, whatever the channels
    priority,       // dynamic list scheduling
    program_order,  // a fixed order
    sequential,     // one operator or transfer at a time, in index order
};

/// Orders that go with a policy; empty where it needs none.
struct Orders {
    /// priority: the position of every operator (lower runs first). program_order: operators in topological order (empty:
    /// index order), or, with `sends`, also transfers: item N + t * K + k sends tensor t to device k.
    std::span<const std::int32_t> order;
    /// priority: the position of every tensor on its channels, or empty: channels serve in processing order.
    std::span<const std::int32_t> transfer_order;
};

/// Simulates placements one after another in memory that is allocated once. Not for two threads at a time.
class Engine {
public:
    virtual ~Engine() = default;

    /// Throws std::invalid_argument when `orders` make no sense, whatever the placement.
    virtual void check(const Orders& orders) = 0;
    /// Throws std::invalid_argument when `orders`, already checked, do not suit `placement`.
    virtual void check_with(const DeviceIndex* placement, const Orders& orders);
    /// The makespan, or `never` as soon as some operator finishes after `cutoff`; fills `run` unless it is null.
    /// Placement and orders have been checked, and no Obstacle is in the way.
    virtual Ticks simulate(const DeviceIndex* placement, const Orders& orders, Ticks cutoff, Run* run) = 0;
};

std::unique_ptr<Engine> make_engine(const Problem& problem, Policy policy, bool sends);

}  // namespace stead
