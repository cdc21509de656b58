#include "sim/policies/fifo.h"

#include <algorithm>

#include "sim/order_checks.h"

namespace stead {
namespace {

/// Operators without inputs are ready at time 0, where the key is the index itself.
template <class Word>
MinHeap<Word> heap_of_sources(const Problem& problem, std::vector<Word>& storage) {
    MinHeap<Word> ready(storage.data());
    for (const std::int32_t v : problem.sources) ready.push(v);
    return ready;
}

/// Sends the outputs of `v`, writes the keys of readers that became ready to `fresh` and moves it to their end; returns
/// until when its device is busy. Writing every key and advancing only for ready ones avoids a branch that no predictor
/// gets right.
template <int kDevices, class Recorder, class Word>
[[gnu::always_inline]] inline Ticks settle(const View<kDevices>& view, const TimeKeys<Word>& keys, std::int32_t v,
                                           Ticks finish, Recorder& recorder, OperatorState* states, Ticks* channel_free,
                                           Word*& fresh) {
    return send(
        view, v, states[v].device, finish, channel_free, recorder,
        [&](std::int32_t reader) { return states[reader].device; },
        [&](std::int32_t reader, Ticks arrival) {
            OperatorState& state = states[reader];
            state.ready = std::max(state.ready, arrival);
            *fresh = keys.pack(state.ready, reader);
            fresh += --state.need == 0;
        });
}

}  // namespace

template <class Word>
void Fifo::Queues<Word>::allocate(std::size_t operators, bool general) {
    ready.resize(MinHeap<Word>::slots(operators));
    if (general) running.resize(MinHeap<Word>::slots(operators));
    fresh.resize(operators + 1);
}

Fifo::Fifo(const Problem& problem, bool force_general)
    : problem_(problem), general_(force_general || !problem.single_sender_channels), states_(problem.operators),
      channel_free_(problem.channels) {
    if (problem.packed_keys)
        queues_.allocate(problem.operators, general_);
    else
        wide_queues_.allocate(problem.operators, general_);
    if (general_) processed_.resize(problem.operators);
}

void Fifo::check(const Orders& orders) {
    check_unused("order", orders.order);
    check_unused("transfer_order", orders.transfer_order);
}

Ticks Fifo::simulate(const DeviceIndex* placement, const Orders&, Ticks cutoff, Run* run) {
    reset_states(problem_, placement, states_);
    std::fill(channel_free_.begin(), channel_free_.end(), 0);
    if (problem_.packed_keys)
        return run ? choose<Remember>(cutoff, run, queues_) : choose<Forget>(cutoff, run, queues_);
    return run ? choose<Remember>(cutoff, run, wide_queues_) : choose<Forget>(cutoff, run, wide_queues_);
}

template <class Recorder, class Word>
Ticks Fifo::choose(Ticks cutoff, Run* run, Queues<Word>& queues) {
    if (general_)
        return problem_.devices <= mask_devices ? general<few_devices, Recorder>(cutoff, run, queues)
                                                : general<any_devices, Recorder>(cutoff, run, queues);
    switch (problem_.devices) {
        case 2: return fast<2, Recorder>(cutoff, run, queues);
        case 4: return fast<4, Recorder>(cutoff, run, queues);
        case 8: return fast<8, Recorder>(cutoff, run, queues);
        case 16: return fast<16, Recorder>(cutoff, run, queues);
        default:
            return problem_.devices <= mask_devices ? fast<few_devices, Recorder>(cutoff, run, queues)
                                                    : fast<any_devices, Recorder>(cutoff, run, queues);
    }
}

template <int kDevices, class Recorder, class Word>
Ticks Fifo::fast(Ticks cutoff, Run* run, Queues<Word>& queues) {
    Recorder recorder(run);
    const View<kDevices> view(problem_);
    const TimeKeys<Word> keys(problem_);
    OperatorState* const states = states_.data();
    Ticks* const channel_free = channel_free_.data();
    Word* const fresh = queues.fresh.data();
    MinHeap<Word> ready = heap_of_sources(problem_, queues.ready);
    PerDevice<kDevices> device_free(problem_);
    Ticks latest = -1;  // so that even a finish at 0 meets the cutoff
    while (!ready.empty()) {
        const Word key = ready.top();
        const std::int32_t v = keys.index(key);
        const int d = states[v].device;
        const Ticks start = std::max(keys.time(key), device_free[d]);
        const Ticks finish = start + view.duration(v, d);
        recorder.ran(v, start, finish);
        if (finish > latest) {
            latest = finish;
            if (finish > cutoff) return never;
        }
        Word* end = fresh;
        device_free[d] = settle(view, keys, v, finish, recorder, states, channel_free, end);
        ready.replace_top_if(end != fresh, *fresh);
        for (const Word* next = fresh + 1; next < end; ++next) ready.push(*next);
        for (const Word* next = fresh; next != end; ++next) view.prefetch(keys.index(*next));
    }
    return std::max<Ticks>(0, latest);
}

template <int kDevices, class Recorder, class Word>
Ticks Fifo::general(Ticks cutoff, Run* run, Queues<Word>& queues) {
    Recorder recorder(run);
    const View<kDevices> view(problem_);
    const TimeKeys<Word> keys(problem_);
    OperatorState* const states = states_.data();
    Ticks* const channel_free = channel_free_.data();
    Word* const fresh = queues.fresh.data();
    MinHeap<Word> ready = heap_of_sources(problem_, queues.ready);
    // Operators whose finish is known: (finish, rank), where the rank counts processed operators. These are processed
    // in increasing (ready, index), so the rank orders equal finishes as those two would.
    MinHeap<Word> running(queues.running.data());
    std::int32_t rank = 0;
    PerDevice<kDevices> device_free(problem_);
    Ticks makespan = 0;
    while (!ready.empty() || !running.empty()) {
        if (!running.empty() && keys.time(running.top()) <= keys.time(ready.top())) {  // finishes before starts
            const Word key = running.top();
            running.pop();
            Word* end = fresh;
            settle(view, keys, processed_[keys.index(key)], keys.time(key), recorder, states, channel_free, end);
            for (const Word* next = fresh; next != end; ++next) ready.push(*next);
        } else {
            const Word key = ready.top();
            ready.pop();
            const std::int32_t v = keys.index(key);
            const int d = states[v].device;
            const Ticks start = std::max(keys.time(key), device_free[d]);
            const Ticks finish = start + view.duration(v, d);
            if (finish > cutoff) return never;
            device_free[d] = finish;
            if (problem_.carries)
                device_free[d] += carrying(view, v, d, [&](std::int32_t reader) { return states[reader].device; });
            makespan = std::max(makespan, finish);
            recorder.ran(v, start, finish);
            processed_[rank] = v;
            running.push(keys.pack(finish, rank++));
        }
    }
    return makespan;
}

}  // namespace stead
