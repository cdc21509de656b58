// Policy "fifo": every device runs its operators in increasing (ready, index), every channel serves transfers in
// increasing (finish of the producer, ready of the producer, producer, tensor, first reader).
#pragma once

#include <cstdint>
#include <vector>

#include "base/problem.h"
#include "sim/event_queue.h"
#include "sim/policies/engine.h"
#include "sim/sending.h"

namespace stead {

/// A reader's key (ready, index) is strictly greater than its producers', so keys settle in increasing order, like
/// the labels of Dijkstra's algorithm. With first-come-first-served devices the start of an operator is known when it
/// becomes ready; when every channel has one sender, arrivals are known at the same moment, and one event per operator
/// is enough (the fast form). Otherwise operators send when they finish (the general form). Where both apply they agree.
class Fifo final : public Engine {
public:
    Fifo(const Problem& problem, bool force_general);

    void check(const Orders& orders) override;
    Ticks simulate(const DeviceIndex* placement, const Orders& orders, Ticks cutoff, Run* run) override;

private:
    /// Keys (time, operator) of one width: the queue of ready operators, that of running ones (general form only),
    /// and those that became ready in the current step.
    template <class Word>
    struct Queues {
        std::vector<Word> ready, running, fresh;
        void allocate(std::size_t operators, bool general);
    };

    template <class Recorder, class Word>
    Ticks choose(Ticks cutoff, Run* run, Queues<Word>& queues);
    template <int kDevices, class Recorder, class Word>
    Ticks fast(Ticks cutoff, Run* run, Queues<Word>& queues);
    template <int kDevices, class Recorder, class Word>
    Ticks general(Ticks cutoff, Run* run, Queues<Word>& queues);

    const Problem& problem_;
    const bool general_;
    std::vector<OperatorState> states_;    // [operator]
    std::vector<Ticks> channel_free_;      // [channel]
    std::vector<std::int32_t> processed_;  // [rank]; general form only
    Queues<std::int64_t> queues_;          // when keys fit 64 bits
    Queues<WideWord> wide_queues_;         // when they do not
};

}  // namespace stead
