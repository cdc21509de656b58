#include "sim/policies/program_order.h"

#include <algorithm>
#include <numeric>

#include "base/placement.h"

namespace stead {

ProgramOrder::ProgramOrder(const Problem& problem, bool sends)
    : problem_(problem), sends_(sends), order_check_(problem), index_order_(problem.operators),
      ready_(problem.operators), channel_free_(problem.channels) {
    std::iota(index_order_.begin(), index_order_.end(), 0);
}

void ProgramOrder::check(const Orders& orders) {
    check_unused("transfer_order", orders.transfer_order);
    if (!sends_ && !orders.order.empty()) order_check_.topological(orders.order);
}

void ProgramOrder::check_with(const DeviceIndex* placement, const Orders& orders) {
    if (sends_) order_check_.items(orders.order, placement);
}

Ticks ProgramOrder::simulate(const DeviceIndex* placement, const Orders& orders, Ticks cutoff, Run* run) {
    std::fill(ready_.begin(), ready_.end(), 0);
    std::fill(channel_free_.begin(), channel_free_.end(), 0);
    if (sends_)
        return problem_.devices <= mask_devices ? list<few_devices>(placement, orders.order, cutoff, run)
                                                : list<any_devices>(placement, orders.order, cutoff, run);
    const std::int32_t* order = orders.order.empty() ? index_order_.data() : orders.order.data();
    return run ? choose<Remember>(placement, order, cutoff, run) : choose<Forget>(placement, order, cutoff, run);
}

template <class Recorder>
Ticks ProgramOrder::choose(const DeviceIndex* placement, const std::int32_t* order, Ticks cutoff, Run* run) {
    switch (problem_.devices) {
        case 2: return in_order<2, Recorder>(placement, order, cutoff, run);
        case 4: return in_order<4, Recorder>(placement, order, cutoff, run);
        case 8: return in_order<8, Recorder>(placement, order, cutoff, run);
        case 16: return in_order<16, Recorder>(placement, order, cutoff, run);
        default:
            return problem_.devices <= mask_devices ? in_order<few_devices, Recorder>(placement, order, cutoff, run)
                                                    : in_order<any_devices, Recorder>(placement, order, cutoff, run);
    }
}

template <int kDevices, class Recorder>
Ticks ProgramOrder::in_order(const DeviceIndex* placement, const std::int32_t* order, Ticks cutoff, Run* run) {
    Recorder recorder(run);
    const View<kDevices> view(problem_);
    const std::int32_t* const end = order + problem_.operators;
    Ticks* const ready = ready_.data();
    Ticks* const channel_free = channel_free_.data();
    PerDevice<kDevices> device_free(problem_);
    Ticks makespan = 0;
    for (; order != end; ++order) {
        const std::int32_t v = *order;
        const int d = placement[v];
        const Ticks start = std::max(ready[v], device_free[d]);
        const Ticks finish = start + view.duration(v, d);
        if (finish > cutoff) return never;
        makespan = std::max(makespan, finish);
        recorder.ran(v, start, finish);
        device_free[d] = send(
            view, v, d, finish, channel_free, recorder, [&](std::int32_t reader) { return placement[reader]; },
            [&](std::int32_t reader, Ticks arrival) { ready[reader] = std::max(ready[reader], arrival); });
    }
    return makespan;
}

template <int kDevices>
Ticks ProgramOrder::list(const DeviceIndex* placement, std::span<const std::int32_t> items, Ticks cutoff, Run* run) {
    return run ? with_sends<kDevices, Remember>(placement, items, cutoff, run)
               : with_sends<kDevices, Forget>(placement, items, cutoff, run);
}

template <int kDevices, class Recorder>
Ticks ProgramOrder::with_sends(const DeviceIndex* placement, std::span<const std::int32_t> items, Ticks cutoff,
                               Run* run) {
    Recorder recorder(run);
    const View<kDevices> view(problem_);
    const std::int32_t n = problem_.operators, k = problem_.devices;
    PerDevice<kDevices> device_free(problem_);
    Ticks makespan = 0;
    const auto deliver = [&](std::int32_t t, int d, std::int32_t first, Ticks arrival) {
        for_each_reader_on(problem_, placement, t, d, first,
                           [&](std::int32_t reader) { ready_[reader] = std::max(ready_[reader], arrival); });
    };
    for (const std::int32_t item : items) {
        if (item < n) {
            const std::int32_t v = item;
            const int d = placement[v];
            const Ticks start = std::max(ready_[v], device_free[d]);
            const Ticks finish = start + view.duration(v, d);
            if (finish > cutoff) return never;
            makespan = std::max(makespan, finish);
            recorder.ran(v, start, finish);
            ready_[v] = finish;
            Carrier carrier(finish);
            for (std::int32_t t = view.tensor_first[v]; t < view.tensor_first[v + 1]; ++t) {
                deliver(t, d, view.consumer_first[t], finish);
                for_each_target(problem_, placement, t, d, [&](int target, std::int32_t first) {
                    if (view.link(d, target).channel == by_sender)
                        deliver(t, target, first,
                                book(view, t, d, target, finish, channel_free_.data(), carrier, recorder));
                });
                carrier.next_tensor();
            }
            device_free[d] = carrier.end;
        } else {
            const std::int32_t t = (item - n) / k, p = problem_.producer[t];
            const int source = placement[p], target = (item - n) % k;
            const std::int32_t first = first_reader_on(problem_, placement, t, target);
            if (source == target || first < 0) continue;  // this placement does not need it
            if (view.link(source, target).channel == by_sender) continue;  // done right behind its producer
            Carrier nobody(ready_[p]);
            deliver(t, target, first, book(view, t, source, target, ready_[p], channel_free_.data(), nobody, recorder));
        }
    }
    return makespan;
}

void Sequential::check(const Orders& orders) {
    check_unused("order", orders.order);
    check_unused("transfer_order", orders.transfer_order);
}

Ticks Sequential::simulate(const DeviceIndex* placement, const Orders&, Ticks cutoff, Run* run) {
    return run ? one_by_one<Remember>(placement, cutoff, run) : one_by_one<Forget>(placement, cutoff, run);
}

template <class Recorder>
Ticks Sequential::one_by_one(const DeviceIndex* placement, Ticks cutoff, Run* run) {
    Recorder recorder(run);
    Ticks now = 0;
    for (std::int32_t v = 0; v < problem_.operators; ++v) {
        const int source = placement[v];
        const Ticks finish = now + problem_.duration[problem_.cell(v, source)];
        if (finish > cutoff) return never;
        recorder.ran(v, now, finish);
        now = finish;
        for (std::int32_t t = problem_.tensor_first[v]; t < problem_.tensor_first[v + 1]; ++t)
            for_each_target(problem_, placement, t, source, [&](int target, std::int32_t) {
                const Link& way = problem_.link(source, target);
                const Ticks arrive = now + problem_.wire(t, way) + way.latency;
                recorder.sent(t, target, now, arrive);
                now = arrive;
            });
    }
    return now;
}

}  // namespace stead
