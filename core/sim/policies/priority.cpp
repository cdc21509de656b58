#include "sim/policies/priority.h"

#include <algorithm>

#include "base/fail.h"
#include "base/placement.h"

namespace stead {
namespace {

/// (position, index) in one word; either has at most 31 bits.
std::int64_t pack(std::int32_t position, std::int32_t index) { return std::int64_t{position} << 32 | index; }
std::int32_t position_of(std::int64_t key) { return static_cast<std::int32_t>(key >> 32); }
std::int32_t index_of(std::int64_t key) { return static_cast<std::int32_t>(key & 0xffffffff); }

/// Cuts `storage` into empty heaps with room for counts[i] keys.
void cut(const std::vector<std::int32_t>& counts, std::vector<std::int64_t>& storage,
         std::vector<MinHeap<std::int64_t>>& heaps) {
    heaps.clear();
    std::size_t used = 0;
    for (const std::int32_t count : counts) {
        heaps.emplace_back(storage.data() + used);
        used += MinHeap<std::int64_t>::slots(count);
    }
}

/// One run of the policy. Time advances from event to event; at each time all events are processed (finishes by
/// operator index, then releases of channels and of devices that carried, then operators that become ready), after
/// which idle devices and channels start something. What has no length ends at the same time and causes another round.
template <int kDevices, class Recorder, class Word>
class PriorityRun {
public:
    PriorityRun(const Problem& problem, const DeviceIndex* placement, const Orders& orders, Priority::Scratch& scratch,
                Priority::Events<Word>& events, Run* run)
        : recorder_(run), problem_(problem), view_(problem), keys_(problem), placement_(placement),
          position_(orders.order.data()), transfer_position_(orders.transfer_order.data()),
          transfers_have_positions_(!orders.transfer_order.empty()), scratch_(scratch), running_(events.running.data()),
          arrivals_(events.arrivals.data()), releases_(events.releases.data()) {
        reset_states(problem, placement, scratch.states);
        prepare_devices();
        if (transfers_have_positions_)
            prepare_channels();
        else
            std::fill(scratch.channel_free.begin(), scratch.channel_free.end(), 0);
    }

    Ticks simulate(Ticks cutoff) {
        for (const std::int32_t v : problem_.sources) arrivals_.push(keys_.pack(0, v));
        while (true) {
            const Word next = std::min({running_.top(), arrivals_.top(), releases_.top()});
            if (next == MinHeap<Word>::sentinel) return makespan_;
            const Ticks now = keys_.time(next);
            process(running_, now, [&](std::int32_t v) { finish(v, now); });
            process(releases_, now, [&](std::int32_t which) {
                if (which < problem_.channels)
                    release(which);
                else
                    idle_.add(which - problem_.channels);
            });
            process(arrivals_, now, [&](std::int32_t v) { enqueue(v); });
            start_operators(now);
            if (makespan_ > cutoff) return never;
            start_transfers(now);
        }
    }

private:
    void prepare_devices() {
        scratch_.counts.assign(problem_.devices, 0);
        for (std::int32_t v = 0; v < problem_.operators; ++v) ++scratch_.counts[placement_[v]];
        cut(scratch_.counts, scratch_.waiting_operators, scratch_.device_queues);
    }

    void prepare_channels() {
        scratch_.counts.assign(problem_.channels, 0);
        for (std::int32_t t = 0; t < problem_.tensors; ++t) {
            scratch_.tensor_at[transfer_position_[t]] = t;
            const int source = placement_[problem_.producer[t]];
            for_each_target(problem_, placement_, t, source, [&](int target, std::int32_t) {
                const int h = problem_.link(source, target).channel;
                if (h >= 0) ++scratch_.counts[h];
            });
        }
        cut(scratch_.counts, scratch_.waiting_transfers, scratch_.channel_queues);
        std::fill(scratch_.busy.begin(), scratch_.busy.end(), 0);
        scratch_.touched.clear();
    }

    /// Takes everything of time `now` out of `events`, by increasing index.
    template <class Handle>
    void process(MinHeap<Word>& events, Ticks now, Handle handle) {
        while (!events.empty() && keys_.time(events.top()) == now) {
            const std::int32_t index = keys_.index(events.top());
            events.pop();
            handle(index);
        }
    }

    void finish(std::int32_t v, Ticks now) {
        const int d = placement_[v];
        const Ticks free =
            transfers_have_positions_
                ? hand_over(v, now)
                : send(
                      view_, v, d, now, scratch_.channel_free.data(), recorder_,
                      [&](std::int32_t reader) { return scratch_.states[reader].device; },
                      [&](std::int32_t reader, Ticks arrival) { deliver(reader, arrival); });
        if (free > now)
            releases_.push(keys_.pack(free, problem_.channels + d));
        else
            idle_.add(d);
    }

    /// Gives the outputs of `v` to its readers on the same device and to the queues of the channels; returns until when
    /// the device is busy with what it carries itself.
    Ticks hand_over(std::int32_t v, Ticks now) {
        const int source = placement_[v];
        Carrier carrier(now);
        for (std::int32_t t = problem_.tensor_first[v]; t < problem_.tensor_first[v + 1]; ++t) {
            deliver_all(t, source, problem_.consumer_first[t], now);
            for_each_target(problem_, placement_, t, source, [&](int target, std::int32_t i) {
                const int h = problem_.link(source, target).channel;
                if (h < 0) {
                    deliver_all(t, target, i, book(view_, t, source, target, now, nullptr, carrier, recorder_));
                } else {
                    scratch_.channel_queues[h].push(pack(transfer_position_[t], i));
                    scratch_.touched.push_back(h);
                }
            });
            carrier.next_tensor();
        }
        return carrier.end;
    }

    void release(std::int32_t h) {
        scratch_.busy[h] = 0;
        scratch_.touched.push_back(h);
    }

    void enqueue(std::int32_t v) {
        const int d = placement_[v];
        scratch_.device_queues[d].push(pack(position_[v], v));
        waiting_.add(d);
    }

    void deliver(std::int32_t reader, Ticks arrival) {
        OperatorState& state = scratch_.states[reader];
        state.ready = std::max(state.ready, arrival);
        if (--state.need == 0) arrivals_.push(keys_.pack(state.ready, reader));
    }

    void deliver_all(std::int32_t t, int d, std::int32_t i, Ticks arrival) {
        for_each_reader_on(problem_, placement_, t, d, i, [&](std::int32_t reader) { deliver(reader, arrival); });
    }

    void start_operators(Ticks now) {
        idle_.for_each_common(waiting_, [&](int d) {
            MinHeap<std::int64_t>& queue = scratch_.device_queues[d];
            const std::int32_t v = index_of(queue.top());
            queue.pop();
            if (queue.empty()) waiting_.remove(d);
            idle_.remove(d);
            const Ticks finish = now + view_.duration(v, d);
            makespan_ = std::max(makespan_, finish);
            recorder_.ran(v, now, finish);
            running_.push(keys_.pack(finish, v));
        });
    }

    void start_transfers(Ticks now) {
        std::vector<std::int32_t>& touched = scratch_.touched;
        if (touched.empty()) return;
        std::sort(touched.begin(), touched.end());  // so that a run does not depend on how events of one time arose
        for (const std::int32_t h : touched) {
            MinHeap<std::int64_t>& queue = scratch_.channel_queues[h];
            if (scratch_.busy[h] || queue.empty()) continue;
            const std::int64_t key = queue.top();
            queue.pop();
            const std::int32_t t = scratch_.tensor_at[position_of(key)], i = index_of(key);
            scratch_.busy[h] = 1;
            releases_.push(keys_.pack(begin(t, placement_[problem_.consumer[i]], i, now), h));
        }
        touched.clear();
    }

    /// Starts a transfer whose first reader is entry i; returns when its channel is free again.
    Ticks begin(std::int32_t t, int target, std::int32_t i, Ticks now) {
        const Link& way = problem_.link(placement_[problem_.producer[t]], target);
        const Ticks wire = problem_.wire(t, way);
        recorder_.sent(t, target, now, now + wire + way.latency);
        deliver_all(t, target, i, now + wire + way.latency);
        return now + wire + way.gap;
    }

    Recorder recorder_;
    const Problem& problem_;
    const View<kDevices> view_;
    const TimeKeys<Word> keys_;
    const DeviceIndex* const placement_;
    const std::int32_t* const position_;           // [operator]
    const std::int32_t* const transfer_position_;  // [tensor]
    const bool transfers_have_positions_;
    Priority::Scratch& scratch_;
    MinHeap<Word> running_, arrivals_, releases_;
    Seen<kDevices> idle_ = Seen<kDevices>::all();  // devices that run nothing
    Seen<kDevices> waiting_;                       // devices with something in their queue
    Ticks makespan_ = 0;
};

}  // namespace

template <class Word>
void Priority::Events<Word>::allocate(const Problem& problem) {
    running.resize(MinHeap<Word>::slots(problem.devices));
    arrivals.resize(MinHeap<Word>::slots(problem.operators));
    releases.resize(MinHeap<Word>::slots(problem.channels + (problem.carries ? problem.devices : 0)));
}

Priority::Priority(const Problem& problem) : problem_(problem), order_check_(problem) {
    const std::size_t spare = MinHeap<std::int64_t>::slots(0);
    scratch_.states.resize(problem.operators);
    scratch_.channel_free.resize(problem.channels);
    scratch_.waiting_operators.resize(problem.operators + spare * problem.devices);
    scratch_.device_queues.reserve(problem.devices);
    scratch_.waiting_transfers.resize(problem.most_transfers + spare * problem.channels);
    scratch_.channel_queues.reserve(problem.channels);
    scratch_.tensor_at.resize(problem.tensors);
    scratch_.busy.resize(problem.channels);
    if (problem.packed_keys)
        events_.allocate(problem);
    else
        wide_events_.allocate(problem);
}

void Priority::check(const Orders& orders) {
    order_check_.permutation("order", orders.order, problem_.operators);
    if (!orders.transfer_order.empty())
        order_check_.permutation("transfer_order", orders.transfer_order, problem_.tensors);
}

Ticks Priority::simulate(const DeviceIndex* placement, const Orders& orders, Ticks cutoff, Run* run) {
    const bool few = problem_.devices <= mask_devices;
    if (problem_.packed_keys)
        return few ? simulate<few_devices>(placement, orders, cutoff, run, events_)
                   : simulate<any_devices>(placement, orders, cutoff, run, events_);
    return few ? simulate<few_devices>(placement, orders, cutoff, run, wide_events_)
               : simulate<any_devices>(placement, orders, cutoff, run, wide_events_);
}

template <int kDevices, class Word>
Ticks Priority::simulate(const DeviceIndex* placement, const Orders& orders, Ticks cutoff, Run* run,
                         Events<Word>& events) {
    if (run)
        return PriorityRun<kDevices, Remember, Word>(problem_, placement, orders, scratch_, events, run)
            .simulate(cutoff);
    return PriorityRun<kDevices, Forget, Word>(problem_, placement, orders, scratch_, events, run).simulate(cutoff);
}

}  // namespace stead
