#include "base/placement.h"

#include <algorithm>

#include "base/fail.h"

namespace stead {

void check_placement(const Problem& problem, const std::uint8_t* placement) {
    const std::uint8_t* const end = placement + problem.operators;
    std::uint8_t largest = 0;
    for (const std::uint8_t* d = placement; d != end; ++d) largest = std::max(largest, *d);
    if (largest < problem.devices) return;
    const std::uint8_t* bad = std::find_if(placement, end, [&](std::uint8_t d) { return d >= problem.devices; });
    fail("operator ", bad - placement, " is on device ", +*bad, ", but devices are 0..", problem.devices - 1);
}

Obstacle find_unsupported(const Problem& problem, const std::uint8_t* placement) {
    if (problem.runs_everywhere) return {};
    const std::int64_t k = problem.devices;
    for (std::int32_t v = 0; v < problem.operators; ++v)
        if (problem.duration[v * k + placement[v]] == impossible)
            return {.status = Status::unsupported, .op = v, .device = placement[v]};
    return {};
}

Obstacle find_obstacle(const Problem& problem, const std::uint8_t* placement) {
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

std::int32_t first_reader_on(const Problem& problem, const std::uint8_t* placement, std::int32_t t, int d) {
    for (std::int32_t i = problem.consumer_first[t]; i < problem.consumer_first[t + 1]; ++i)
        if (placement[problem.consumer[i]] == d) return i;
    return -1;
}

void resident_weights(const Problem& problem, const std::uint8_t* placement, std::int64_t* bytes) {
    std::fill_n(bytes, problem.devices, 0);
    for (std::int32_t w = 0; w < problem.weights; ++w) {
        std::uint64_t seen = 0;
        for (std::int32_t i = problem.weight_user_first[w]; i < problem.weight_user_first[w + 1]; ++i) {
            const int d = placement[problem.weight_user[i]];
            if (!(seen >> d & 1)) bytes[d] += problem.weight_bytes[w];
            seen |= std::uint64_t{1} << d;
        }
    }
}

}  // namespace stead
