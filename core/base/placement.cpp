#include "base/placement.h"

#include <algorithm>

#include "base/fail.h"

namespace stead {

std::vector<DeviceIndex> widened(std::span<const std::uint8_t> devices) {
    return {devices.begin(), devices.end()};
}

void check_few_devices(const Problem& problem, const char* what) {
    if (problem.devices > mask_devices)
        fail(what, " takes at most ", mask_devices, " devices, got ", problem.devices);
}

void check_placement(const Problem& problem, const DeviceIndex* placement) {
    const DeviceIndex* const end = placement + problem.operators;
    DeviceIndex largest = 0;
    for (const DeviceIndex* d = placement; d != end; ++d) largest = std::max(largest, *d);
    if (largest < problem.devices) return;
    const DeviceIndex* bad = std::find_if(placement, end, [&](DeviceIndex d) { return d >= problem.devices; });
    fail("operator ", bad - placement, " is on device ", +*bad, ", but devices are 0..", problem.devices - 1);
}

Obstacle find_unsupported(const Problem& problem, const DeviceIndex* placement) {
    if (problem.runs_everywhere) return {};
    for (std::int32_t v = 0; v < problem.operators; ++v)
        if (problem.duration[problem.cell(v, placement[v])] == impossible)
            return {.status = Status::unsupported, .op = v, .device = placement[v]};
    return {};
}

Obstacle find_obstacle(const Problem& problem, const DeviceIndex* placement) {
    const Obstacle unsupported = find_unsupported(problem, placement);
    if (unsupported.status != Status::ok || problem.all_reachable) return unsupported;
    Obstacle first;
    for (std::int32_t t = 0; t < problem.tensors && first.status == Status::ok; ++t) {
        const int source = placement[problem.producer[t]];
        for_each_target(problem, placement, t, source, [&](int target, std::int32_t) {
            if (first.status == Status::ok && problem.link(source, target).latency == impossible)
                first = {.status = Status::unreachable, .source = source, .target = target, .tensor = t};
        });
    }
    return first;
}

std::int32_t first_reader_on(const Problem& problem, const DeviceIndex* placement, std::int32_t t, int d) {
    for (std::int32_t i = problem.consumer_first[t]; i < problem.consumer_first[t + 1]; ++i)
        if (placement[problem.consumer[i]] == d) return i;
    return -1;
}

void resident_weights(const Problem& problem, const DeviceIndex* placement, std::int64_t* bytes) {
    std::fill_n(bytes, problem.devices, 0);
    with_device_set(problem, [&](auto none) {
        for (std::int32_t w = 0; w < problem.weights; ++w) {
            auto seen = none;
            for (std::int32_t i = problem.weight_user_first[w]; i < problem.weight_user_first[w + 1]; ++i) {
                const int d = placement[problem.weight_user[i]];
                if (!seen.has(d)) bytes[d] += problem.weight_bytes[w];
                seen.add(d);
            }
        }
    });
}

}  // namespace stead
