// Policies without an event queue: operators run in an order that is given.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/order_checks.h"
#include "sim/policies/engine.h"

namespace stead {

/// Policy "program_order": what in-order streams execute. A device waits for its next operator even if a later one is
/// ready, and channels serve in program order: outputs right after their producer, or where the order says so.
class ProgramOrder final : public Engine {
public:
    ProgramOrder(const Problem& problem, bool sends);

    void check(const Orders& orders) override;
    void check_with(const DeviceIndex* placement, const Orders& orders) override;
    Ticks simulate(const DeviceIndex* placement, const Orders& orders, Ticks cutoff, Run* run) override;

private:
    template <class Recorder>
    Ticks choose(const DeviceIndex* placement, const std::int32_t* order, Ticks cutoff, Run* run);
    template <int kDevices, class Recorder>
    Ticks in_order(const DeviceIndex* placement, const std::int32_t* order, Ticks cutoff, Run* run);
    template <int kDevices>
    Ticks list(const DeviceIndex* placement, std::span<const std::int32_t> items, Ticks cutoff, Run* run);
    template <int kDevices, class Recorder>
    Ticks with_sends(const DeviceIndex* placement, std::span<const std::int32_t> items, Ticks cutoff, Run* run);

    const Problem& problem_;
    const bool sends_;
    OrderCheck order_check_;
    std::vector<std::int32_t> index_order_;  // the default order
    std::vector<Ticks> ready_;               // [operator]; with sends, its finish once it ran
    std::vector<Ticks> channel_free_;        // [channel]
};

/// Policy "sequential": the whole cluster does one thing at a time. Operators run in index order; after each, its
/// outputs go to the other devices of their readers, one by one, in the order of the first readers.
class Sequential final : public Engine {
public:
    explicit Sequential(const Problem& problem) : problem_(problem) {}

    void check(const Orders& orders) override;
    Ticks simulate(const DeviceIndex* placement, const Orders& orders, Ticks cutoff, Run* run) override;

private:
    template <class Recorder>
    Ticks one_by_one(const DeviceIndex* placement, Ticks cutoff, Run* run);

    const Problem& problem_;
};

}  // namespace stead
