// Policy "priority": dynamic list scheduling.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/event_queue.h"
#include "sim/order_checks.h"
#include "sim/policies/engine.h"

namespace stead {

/// Whenever a device is idle, it starts the ready operator with the lowest position; nothing is interrupted. Channels
/// serve in the order in which transfers are sent or, when tensors have positions too, like devices: whenever a channel
/// is idle, it starts the waiting transfer with the lowest (position of the tensor, first reader).
class Priority final : public Engine {
public:
    explicit Priority(const Problem& problem);

    void check(const Orders& orders) override;
    Ticks simulate(const DeviceIndex* placement, const Orders& orders, Ticks cutoff, Run* run) override;

    /// Event queues with keys (time, index) of one width.
    template <class Word>
    struct Events {
        std::vector<Word> running;   // (finish, operator)
        std::vector<Word> arrivals;  // (ready, operator)
        std::vector<Word> releases;  // (time, channel)
        void allocate(const Problem& problem);
    };

    /// Memory of a run.
    struct Scratch {
        std::vector<OperatorState> states;
        std::vector<Ticks> channel_free;              // [channel]; when channels serve in processing order
        std::vector<std::int64_t> waiting_operators;  // storage of one heap per device
        std::vector<MinHeap<std::int64_t>> device_queues;
        std::vector<std::int64_t> waiting_transfers;  // storage of one heap per channel
        std::vector<MinHeap<std::int64_t>> channel_queues;
        std::vector<std::int32_t> counts;     // [device or channel]
        std::vector<std::int32_t> tensor_at;  // [position of a tensor]
        std::vector<std::uint8_t> busy;       // [channel]
        std::vector<std::int32_t> touched;    // channels to look at in this step
    };

private:
    template <int kDevices, class Word>
    Ticks simulate(const DeviceIndex* placement, const Orders& orders, Ticks cutoff, Run* run, Events<Word>& events);

    const Problem& problem_;
    OrderCheck order_check_;
    Scratch scratch_;
    Events<std::int64_t> events_;   // when keys fit 64 bits
    Events<WideWord> wide_events_;  // when they do not
};

}  // namespace stead
