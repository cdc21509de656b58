#include "sim/loads.h"

#include <algorithm>

namespace stead {
namespace {

/// Adds the time of tensor `t` on `way` to each of the given loads; false where there is no way.
template <class... Load>
bool cross(const Problem& problem, std::int32_t t, const Link& way, Load&... loads) {
    if (way.latency == impossible) return false;
    const Ticks ticks = problem.wire(t, way) + way.latency;
    ((loads += ticks), ...);
    return true;
}

/// Adds what operator v on `source` computes, and what its outputs cost; false if one has no way to a reader.
bool add_operator(const Problem& problem, const DeviceIndex* placement, std::int32_t v, const Loads& loads) {
    const int source = placement[v];
    const int phase = problem.phase[v] == 0 ? 0 : 1;
    Ticks& sent = loads.sent[2 * source + phase];
    bool reachable = true;
    loads.compute[2 * source + phase] += problem.duration[problem.cell(v, source)];
    for (std::int32_t t = problem.tensor_first[v]; t < problem.tensor_first[v + 1]; ++t) {
        bool written = false;
        for_each_target(problem, placement, t, source, [&](int target, std::int32_t) {
            Ticks& received = loads.received[2 * target + phase];
            if (!problem.routed_by_host) {
                reachable &= cross(problem, t, problem.link(source, target), sent, received);
                return;
            }
            if (!written) reachable &= cross(problem, t, problem.host_write[source], sent);
            written = true;
            reachable &= cross(problem, t, problem.host_read[target], received);
        });
    }
    return reachable;
}

void fill(const Problem& problem, const Loads& loads, Ticks value) {
    for (Ticks* const load : {loads.compute, loads.received, loads.sent}) std::fill_n(load, 2 * problem.devices, value);
}

}  // namespace

Status find_loads(const Problem& problem, const DeviceIndex* placement, const Loads& loads) {
    fill(problem, loads, -1);
    if (find_unsupported(problem, placement).status != Status::ok) return Status::unsupported;
    fill(problem, loads, 0);
    bool reachable = true;
    for (std::int32_t v = 0; v < problem.operators && reachable; ++v)
        reachable = add_operator(problem, placement, v, loads);
    if (reachable) return Status::ok;
    fill(problem, loads, -1);
    return Status::unreachable;
}

}  // namespace stead
