#include "sim/memory.h"

#include <algorithm>
#include <span>

namespace stead {
namespace {

std::int64_t over(std::int64_t bytes, std::int64_t capacity) { return std::max<std::int64_t>(0, bytes - capacity); }

}  // namespace

void Changes::clear(const std::int64_t* counts) {
    std::int64_t used = 0;
    for (std::size_t d = 0; d < first_.size(); ++d) {
        first_[d] = end_[d] = used;
        used += counts[d] + 1;
    }
}

void Changes::sort() {
    for (std::size_t d = 0; d < first_.size(); ++d) {
        std::sort(all_.begin() + first_[d], all_.begin() + end_[d],
                  [](const Change& a, const Change& b) { return a.time < b.time; });
        all_[end_[d]] = {never, 0};
    }
}

Memory::Memory(const Problem& problem)
    : problem_(problem), peaks_(problem.devices), weights_(problem.devices), sequence_(problem.operators),
      sequence_first_(problem.devices + 1), needed_until_(problem.tensors), released_(problem.operators),
      received_(problem.devices, problem.most_transfers), held_(problem.devices, problem.most_transfers) {}

bool Memory::needs_run(const DeviceIndex* placement, MemoryMode mode) {
    std::fill(peaks_.begin(), peaks_.end(), Peak{});
    open_ = {};
    if (mode == MemoryMode::off || (mode == MemoryMode::check && problem_.memory_is_ample)) return false;
    resident_weights(problem_, placement, weights_.data());
    if (mode == MemoryMode::check) {
        with_device_count(problem_, [&](auto count) { bound<count>(placement); });
    } else {
        for (int d = 0; d < problem_.devices; ++d) open_.add(d);
    }
    return !open_.empty();
}

/// Decides devices by cheap bounds. An operator that takes time has its inputs, outputs and workspace in memory at once;
/// at most, all blocks are there together with the largest workspace, because a device runs one operator at a time.
template <int kDevices>
void Memory::bound(const DeviceIndex* placement) {
    const View<kDevices> view(problem_);
    const std::int64_t* const inputs = problem_.input_bytes.data();
    const std::int64_t* const outputs = problem_.output_bytes.data();
    PerDevice<kDevices> blocks(problem_), workspace(problem_), single(problem_);
    for (std::int32_t v = 0; v < problem_.operators; ++v) {
        const int d = placement[v];
        const std::int64_t cell = view.cell(v, d), scratch = view.workspaces[cell];
        blocks[d] += outputs[v];
        workspace[d] = std::max(workspace[d], scratch);
        if (view.durations[cell] > 0) single[d] = std::max(single[d], inputs[v] + outputs[v] + scratch);
        for (std::int32_t t = view.tensor_first[v]; t < view.tensor_first[v + 1]; ++t)
            for_each_target_of(Seen<kDevices>(), placement, view.consumer, view.consumer_first[t],
                               view.consumer_first[t + 1], d,
                               [&](int target, std::int32_t) { blocks[target] += view.tensor_bytes[t]; });
    }
    for (int d = 0; d < problem_.devices; ++d) {
        const std::int64_t capacity = problem_.memory_bytes[d];
        peaks_[d].over = over(weights_[d] + single[d], capacity);
        if (peaks_[d].over == 0 && weights_[d] + blocks[d] + workspace[d] > capacity) open_.add(d);
    }
}

const std::vector<Peak>& Memory::judge(const DeviceIndex* placement, const Run& run, Ticks makespan) {
    if (!open_.empty()) prepare(placement, run);
    for (int d = 0; d < problem_.devices; ++d) {
        if (!open_.has(d)) continue;
        Peak peak{.bytes = weights_[d], .at = 0};
        sweep(d, run, makespan, [&](Ticks time, std::int64_t bytes) {
            if (bytes > peak.bytes) peak = {.bytes = bytes, .at = time};
        });
        peak.over = over(peak.bytes, problem_.memory_bytes[d]);
        peaks_[d] = peak;
    }
    return peaks_;
}

std::vector<Curve> Memory::curves(const DeviceIndex* placement, const Run& run, Ticks makespan) {
    resident_weights(problem_, placement, weights_.data());
    prepare(placement, run);
    std::vector<Curve> curves(problem_.devices);
    for (int d = 0; d < problem_.devices; ++d) {
        Curve& curve = curves[d];
        const auto step = [&](Ticks time, std::int64_t bytes) {
            if (!curve.bytes.empty() && curve.bytes.back() == bytes) return;
            if (!curve.times.empty() && curve.times.back() == time) {
                curve.bytes.back() = bytes;
                return;
            }
            curve.times.push_back(time);
            curve.bytes.push_back(bytes);
        };
        step(0, weights_[d]);
        sweep(d, run, makespan, step);
        step(makespan, weights_[d]);
    }
    return curves;
}

void Memory::prepare(const DeviceIndex* placement, const Run& run) {
    sort_operators(placement, run);
    note_transfers(placement, run);
    with_device_count(problem_, [&](auto count) { find_ends<count>(placement, run); });
    received_.sort();
    held_.sort();
}

void Memory::sort_operators(const DeviceIndex* placement, const Run& run) {
    std::fill(sequence_first_.begin(), sequence_first_.end(), 0);
    for (std::int32_t v = 0; v < problem_.operators; ++v) ++sequence_first_[placement[v] + 1];
    for (int d = 0; d < problem_.devices; ++d) sequence_first_[d + 1] += sequence_first_[d];
    std::int32_t next[max_devices];
    std::copy_n(sequence_first_.begin(), problem_.devices, next);
    for (const std::int32_t v : run.order) sequence_[next[placement[v]]++] = v;
}

void Memory::note_transfers(const DeviceIndex* placement, const Run& run) {
    const std::span transfers(run.transfers.data(), run.transfer_count);
    std::int64_t incoming[max_devices], outgoing[max_devices];
    for (std::int64_t* const count : {incoming, outgoing}) std::fill_n(count, problem_.devices, 0);
    for (const Transfer& transfer : transfers) {
        ++incoming[transfer.target];
        ++outgoing[placement[problem_.producer[transfer.tensor]]];
    }
    received_.clear(incoming);
    held_.clear(outgoing);  // at most one per transfer
    std::fill(needed_until_.begin(), needed_until_.end(), 0);
    for (const Transfer& transfer : transfers) {
        received_.add(transfer.target, transfer.begin, problem_.tensor_bytes[transfer.tensor]);
        needed_until_[transfer.tensor] = std::max(needed_until_[transfer.tensor], transfer.arrive);
    }
}

/// Finds what frees each block: the finish of an operator on its device, or an arrival elsewhere.
template <int kDevices>
void Memory::find_ends(const DeviceIndex* placement, const Run& run) {
    std::fill(released_.begin(), released_.end(), 0);
    const View<kDevices> view(problem_);
    const std::uint8_t* const kept = problem_.tensor_kept.data();
    const Ticks* const finish = run.finish.data();
    const Ticks* const needed_until = needed_until_.data();
    std::int64_t* const released = released_.data();
    std::int32_t last[most_devices<kDevices>];
    for (std::int32_t v = 0; v < problem_.operators; ++v) {
        const int source = placement[v];
        for (std::int32_t t = view.tensor_first[v]; t < view.tensor_first[v + 1]; ++t) {
            const std::int64_t bytes = view.tensor_bytes[t];
            Seen<kDevices> elsewhere;
            last[source] = v;
            for (std::int32_t i = view.consumer_first[t]; i < view.consumer_first[t + 1]; ++i) {
                const std::int32_t reader = view.consumer[i];
                const int d = placement[reader];
                const bool first = d != source && !elsewhere.has(d);
                if (first || finish[reader] > finish[last[d]]) last[d] = reader;
                elsewhere.add(d);
            }
            elsewhere.remove(source);
            elsewhere.for_each([&](int d) { released[last[d]] += bytes; });
            if (kept[t]) continue;
            if (needed_until[t] > finish[last[source]])
                held_.add(source, needed_until[t], bytes);
            else
                released[last[source]] += bytes;
        }
    }
}

/// Calls visit(time, bytes) with the level of device d after all changes of each time before the end of the run. At the
/// end every block is freed, and blocks that begin there have no length.
template <class Visit>
void Memory::sweep(int d, const Run& run, Ticks makespan, Visit visit) const {
    const Changes::Change* received = received_.on(d);
    const Changes::Change* held = held_.on(d);
    const std::int32_t* next = sequence_.data() + sequence_first_[d];
    const std::int32_t* const end = sequence_.data() + sequence_first_[d + 1];
    const std::int64_t* const workspaces = problem_.workspace_bytes.data();
    const std::int64_t* const outputs = problem_.output_bytes.data();
    const std::int64_t columns = problem_.columns, column = problem_.column[d];
    bool running = false;
    const auto next_change = [&] { return next == end ? never : running ? run.finish[*next] : run.start[*next]; };
    std::int64_t level = weights_[d];
    Ticks operator_time = next_change();
    while (true) {
        const Ticks now = std::min({operator_time, received->time, held->time});
        if (now >= makespan) return;
        for (; operator_time == now; operator_time = next_change()) {
            const std::int32_t v = *next;
            const std::int64_t workspace = workspaces[v * columns + column];
            if (running) {
                level -= workspace + released_[v];
                ++next;
            } else {
                level += workspace + outputs[v];
            }
            running = !running;
        }
        for (; received->time == now; ++received) level += received->bytes;
        for (; held->time == now; ++held) level -= held->bytes;
        visit(now, level);
    }
}

UntimedMemory::UntimedMemory(const Problem& problem)
    : problem_(problem), peaks_(problem.devices), weights_(problem.devices), level_(problem.devices),
      released_(problem.operators) {}

const std::vector<Peak>& UntimedMemory::judge(const DeviceIndex* placement) {
    resident_weights(problem_, placement, weights_.data());
    level_ = weights_;
    std::fill(released_.begin(), released_.end(), 0);
    for (int d = 0; d < problem_.devices; ++d) peaks_[d] = {.bytes = weights_[d]};
    with_device_count(problem_, [&](auto count) { add_up<count>(placement); });
    for (int d = 0; d < problem_.devices; ++d) peaks_[d].over = over(peaks_[d].bytes, problem_.memory_bytes[d]);
    return peaks_;
}

/// Runs the operators in index order and notes the highest level of each device.
template <int kDevices>
void UntimedMemory::add_up(const DeviceIndex* placement) {
    const View<kDevices> view(problem_);
    for (std::int32_t t = 0; t < problem_.tensors; ++t) note_lifetime(view, t, placement);
    for (std::int32_t v = 0; v < problem_.operators; ++v) {
        const int d = placement[v];
        level_[d] += problem_.output_bytes[v];
        peaks_[d].bytes = std::max(peaks_[d].bytes, level_[d] + view.workspaces[view.cell(v, d)]);
        level_[d] -= released_[v];
    }
}

/// Puts received copies of tensor t on their devices and notes after which operators it is freed.
template <int kDevices>
void UntimedMemory::note_lifetime(const View<kDevices>& view, std::int32_t t, const DeviceIndex* placement) {
    const std::int64_t bytes = view.tensor_bytes[t];
    const int source = placement[problem_.producer[t]];
    Seen<kDevices> elsewhere;
    std::int32_t last[most_devices<kDevices>];
    last[source] = problem_.producer[t];
    for (std::int32_t i = view.consumer_first[t]; i < view.consumer_first[t + 1]; ++i) {
        const int d = placement[view.consumer[i]];
        last[d] = view.consumer[i];  // readers increase
        if (d != source) elsewhere.add(d);
    }
    elsewhere.for_each([&](int d) {
        level_[d] += bytes;
        released_[last[d]] += bytes;
    });
    if (elsewhere.empty() && !problem_.tensor_kept[t]) released_[last[source]] += bytes;
}

}  // namespace stead
