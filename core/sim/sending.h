// What the simulation engines share: the record of one run, and the sending of tensors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "base/device_set.h"
#include "base/problem.h"

namespace stead {

/// One tensor on its way to one device.
struct Transfer {
    Ticks begin;
    Ticks arrive;
    std::int32_t tensor;
    std::int32_t target;
};

/// One simulated run. Sized once for a problem and used again for any number of placements.
struct Run {
    Run() = default;
    explicit Run(const Problem& problem)
        : start(problem.operators), finish(problem.operators), order(problem.operators),
          transfers(problem.most_transfers) {}

    std::vector<Ticks> start;         // [operator]
    std::vector<Ticks> finish;        // [operator]
    std::vector<std::int32_t> order;  // operators as they were processed; on each device as they ran
    std::vector<Transfer> transfers;  // as they were booked; the first `transfer_count` are valid
    std::int64_t transfer_count = 0;
};

/// All that an event loop knows about an operator: a quarter of a cache line.
struct OperatorState {
    Ticks ready;        // latest arrival so far
    std::int32_t need;  // tensors that have not been sent yet
    std::int32_t device;
};

inline void reset_states(const Problem& problem, const DeviceIndex* placement, std::vector<OperatorState>& states) {
    const std::int32_t* const inputs = problem.inputs.data();
    OperatorState* const state = states.data();
    for (std::int32_t v = 0; v < problem.operators; ++v) state[v] = {0, inputs[v], placement[v]};
}

/// Recorder of an engine that only wants the makespan.
struct Forget {
    explicit Forget(Run*) {}
    void ran(std::int32_t, Ticks, Ticks) {}
    void sent(std::int32_t, int, Ticks, Ticks) {}
};

/// Recorder that fills a Run.
class Remember {
public:
    explicit Remember(Run* run)
        : start_(run->start.data()), finish_(run->finish.data()), order_(run->order.data()),
          transfer_(run->transfers.data()), run_(run) {}
    Remember(const Remember&) = delete;
    Remember& operator=(const Remember&) = delete;
    ~Remember() { run_->transfer_count = transfer_ - run_->transfers.data(); }

    void ran(std::int32_t v, Ticks start, Ticks finish) {
        start_[v] = start;
        finish_[v] = finish;
        *order_++ = v;
    }
    void sent(std::int32_t t, int target, Ticks begin, Ticks arrive) { *transfer_++ = {begin, arrive, t, target}; }

private:
    Ticks* start_;
    Ticks* finish_;
    std::int32_t* order_;
    Transfer* transfer_;
    Run* run_;
};

// How many devices code is made for, if not for exactly so many: as many as a mask has bits, or any number.
inline constexpr int few_devices = 0, any_devices = -1;

template <int kDevices>
inline constexpr int most_devices = kDevices > 0               ? kDevices
                                    : kDevices == few_devices ? mask_devices
                                                              : max_devices;
template <int kDevices>
using Seen = DeviceSet<(most_devices<kDevices> + 63) / 64>;

/// Calls use(count) with `few_devices` or `any_devices` as a constant: code for few devices stays as quick as if there
/// were no others.
template <class Use>
void with_device_count(const Problem& problem, Use use) {
    if (problem.devices <= mask_devices)
        use(std::integral_constant<int, few_devices>());
    else
        use(std::integral_constant<int, any_devices>());
}

/// A time or bytes for each device, 0 at first.
template <int kDevices>
struct PerDevice {
    explicit PerDevice(const Problem& problem) { std::fill_n(values, problem.devices, 0); }
    std::int64_t& operator[](int d) { return values[d]; }
    std::int64_t values[most_devices<kDevices>];
};

/// The arrays of a problem as raw pointers: a copy on the stack lets the compiler keep them in registers.
/// `devices` is a constant when the number of devices is known at compile time (kDevices > 0).
template <int kDevices>
struct View {
    explicit View(const Problem& problem)
        : tensor_first(problem.tensor_first.data()), consumer_first(problem.consumer_first.data()),
          consumer(problem.consumer.data()), tensor_bytes(problem.tensor_bytes.data()),
          tensor_ticks(problem.timed_by_tensor() ? problem.tensor_ticks.data() : nullptr), links(problem.links.data()),
          durations(problem.duration.data()), workspaces(problem.workspace_bytes.data()), column(problem.column.data()),
          given_devices(problem.devices), columns(problem.columns) {}

    std::int64_t devices() const { return kDevices > 0 ? kDevices : given_devices; }
    /// Problem::cell; few devices have each a column of their own.
    std::int64_t cell(std::int32_t v, int d) const {
        if constexpr (kDevices == any_devices) return v * columns + column[d];
        return v * devices() + d;
    }
    Ticks duration(std::int32_t v, int d) const { return durations[cell(v, d)]; }
    const Link& link(int s, int d) const { return links[s * devices() + d]; }
    Ticks wire(std::int32_t t, const Link& way) const {
        return tensor_ticks ? way.hops * tensor_ticks[t]
                            : std::llrint(static_cast<double>(tensor_bytes[t]) * way.ps_per_byte);
    }
    /// Fetches what will be needed when `v` runs: pays off as soon as the arrays exceed the cache.
    void prefetch(std::int32_t v) const {
        __builtin_prefetch(&durations[v * (kDevices == any_devices ? columns : devices())]);
        __builtin_prefetch(&tensor_first[v]);
    }

    const std::int32_t* tensor_first;
    const std::int32_t* consumer_first;
    const std::int32_t* consumer;
    const std::int64_t* tensor_bytes;
    const Ticks* tensor_ticks;
    const Link* links;
    const Ticks* durations;
    const std::int64_t* workspaces;
    const DeviceIndex* column;
    std::int64_t given_devices;
    std::int64_t columns;
};

/// A device that carries what it has produced: it copies one tensor after another, each once for all who read it, and
/// is busy until the last of them has it.
struct Carrier {
    explicit Carrier(Ticks produced) : begin(produced), end(produced) {}
    void next_tensor() { begin = end; }

    Ticks begin;  // of the copy of this tensor
    Ticks end;    // until when the device is busy
};

/// Books one transfer on its channel, or lets its sender carry it; returns when it arrives.
template <int kDevices, class Recorder>
[[gnu::always_inline]] inline Ticks book(const View<kDevices>& view, std::int32_t t, int source, int target,
                                         Ticks produced, Ticks* channel_free, Carrier& carrier, Recorder& recorder) {
    const Link& way = view.link(source, target);
    const Ticks wire = view.wire(t, way);
    Ticks begin = produced;
    if (way.channel >= 0) {
        Ticks& free = channel_free[way.channel];
        if (free > begin) begin = free;
        free = begin + wire + way.gap;
    } else if (way.channel == by_sender) {
        begin = carrier.begin;
        carrier.end = std::max(carrier.end, begin + wire + way.latency);
    }
    const Ticks arrive = begin + wire + way.latency;
    recorder.sent(t, target, begin, arrive);
    return arrive;
}

/// Sends all outputs of `v`: one transfer per tensor and device, in the order of the first readers, so that renaming
/// equal devices changes nothing. Calls deliver(reader, arrival) for every reader of every output. Returns until when
/// the device is busy with what it carries itself: `produced` where that is nothing.
template <int kDevices, class Recorder, class DeviceOf, class Deliver>
[[gnu::always_inline]] inline Ticks send(const View<kDevices>& view, std::int32_t v, int source, Ticks produced,
                                        Ticks* channel_free, Recorder& recorder, DeviceOf device_of, Deliver deliver) {
    Ticks at[most_devices<kDevices>];
    at[source] = produced;
    Carrier carrier(produced);
    const std::int32_t last = view.tensor_first[v + 1];
    for (std::int32_t t = view.tensor_first[v]; t < last; ++t) {
        Seen<kDevices> seen;
        seen.add(source);
        const std::int32_t end = view.consumer_first[t + 1];
        for (std::int32_t i = view.consumer_first[t]; i < end; ++i) {
            const std::int32_t reader = view.consumer[i];
            const int d = device_of(reader);
            if (!seen.has(d)) {
                seen.add(d);
                at[d] = book(view, t, source, d, produced, channel_free, carrier, recorder);
            }
            deliver(reader, at[d]);
        }
        carrier.next_tensor();
    }
    return carrier.end;
}

/// How long the device of `v` will carry its outputs, as send() does.
template <int kDevices, class DeviceOf>
Ticks carrying(const View<kDevices>& view, std::int32_t v, int source, DeviceOf device_of) {
    Ticks total = 0;
    for (std::int32_t t = view.tensor_first[v]; t < view.tensor_first[v + 1]; ++t) {
        Ticks longest = 0;
        for (std::int32_t i = view.consumer_first[t]; i < view.consumer_first[t + 1]; ++i) {
            const int d = device_of(view.consumer[i]);
            if (d == source) continue;
            const Link& way = view.link(source, d);
            if (way.channel == by_sender) longest = std::max(longest, view.wire(t, way) + way.latency);
        }
        total += longest;
    }
    return total;
}

}  // namespace stead
