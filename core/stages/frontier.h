// Chains of stages that end with one ideal, and how they go on: what the dynamic programs over ideals share.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "stages/growing_stage.h"
#include "stages/remaining_work.h"
#include "stages/stages.h"

namespace stead {

/// The least cost of all chains in one state, where one number decides.
class LeastCost {
public:
    /// Takes a cost in; returns how many bytes more it occupies.
    std::int64_t add(const Cost& cost) {
        ticks_ = std::min(ticks_, cost.forward);
        return 0;
    }
    template <class Use>
    void for_each(Use use) const {
        if (ticks_ != never) use(Cost{ticks_, 0});
    }

private:
    Ticks ticks_ = never;
};

/// The costs of all chains in one state that no other one dominates.
class ParetoCosts {
public:
    std::int64_t add(const Cost& cost);
    template <class Use>
    void for_each(Use use) const {
        for (const Cost& cost : costs_) use(cost);
    }

private:
    std::vector<Cost> costs_;  // forward rises, backward falls
};

/// A chain that ends in `state` with `cost`.
struct Arrival {
    std::int64_t state = 0;
    Cost cost;
};

/// The terms of a search: what counts, and what must be done by when.
struct Terms {
    Terms(const Stages& stages, const StagePrices& prices);

    /// No split costs less.
    Ticks least_ticks() const;

    /// From now on only costs below `cutoff`, at least 1, count. Tables of all states are made here.
    void cut(Ticks cutoff);

    const Stages& stages;
    const StagePrices& prices;
    DeviceCounts counts;
    WorkWindows windows;
    std::vector<Kinds> kinds_left;  // [state]
    Ticks cutoff = never;
};

/// The ways to go on from one ideal.
template <class Costs>
class Frontier {
public:
    explicit Frontier(const Terms& terms);

    /// Takes the chains that end with an ideal, [state]: `done` is its work, `waiting` are tensors with readers after
    /// it. Chains are left out if another with no more devices is as good, or if the rest cannot fit what is left.
    void start(const Costs* chains, const WorkWindows::Work& done, std::span<const std::int32_t> waiting);

    /// Kinds of devices that a next stage can have; none when no chain is worth going on.
    Kinds wanted() const { return wanted_; }

    /// An ideal with less work is no use as the next one.
    const WorkWindows::Work& needed() const { return needed_; }

    /// Chains that arrive by adding `stage`, with which `done` is the work.
    std::span<const Arrival> arrivals(const GrowingStage& stage, const WorkWindows::Work& done);

private:
    /// A chain that goes on, before the cost of the next stage.
    struct Next {
        Arrival arrival;
        std::int64_t needed = 0;  // by the first measure
    };
    /// The chains that can go on with a stage on so many devices of one kind; the least demanding come first.
    struct Step {
        int kind = 0, devices = 0;
        WorkWindows::Work needed{};  // by all of them
        std::vector<Next> chains;
    };

    bool fits(std::int64_t state, WorkWindows::Work done, std::span<const std::int32_t> waiting);
    void go_on(std::int64_t state, const Cost& cost);

    const Terms& terms_;
    std::vector<Step> steps_;
    std::vector<Costs> with_fewer_;  // [state]; of chains with no more devices of any kind
    std::vector<std::pair<Kinds, WorkWindows::Work>> receiving_;
    std::vector<Arrival> arrivals_;
    Kinds wanted_ = 0;
    WorkWindows::Work needed_{};
};

}  // namespace stead
