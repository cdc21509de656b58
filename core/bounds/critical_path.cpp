#include "bounds/critical_path.h"

#include <algorithm>

namespace stead {

namespace {

Ticks later(Ticks moment, Ticks delay) { return moment == never || delay == never ? never : moment + delay; }

Ticks over(const Problem& problem, std::int32_t t, const Link& way) {
    return way.latency == impossible ? never : way.latency + problem.wire(t, way);
}

}  // namespace

Ticks crossing_ticks(const Problem& problem, std::int32_t t, int s, int d, Crossing crossing) {
    if (crossing == Crossing::link) return over(problem, t, problem.link(s, d));
    return later(over(problem, t, problem.host_write[s]), over(problem, t, problem.host_read[d]));
}

std::vector<Ticks> earliest_finish(const Problem& problem, Crossing crossing) {
    const int devices = problem.devices;
    std::vector<Ticks> ready(static_cast<std::size_t>(problem.operators) * devices, 0);
    std::vector<Ticks> finish(devices), arrival(devices), earliest(problem.operators, never);
    for (std::int32_t v = 0; v < problem.operators; ++v) {
        const std::size_t row = static_cast<std::size_t>(v) * devices;
        for (int d = 0; d < devices; ++d) {
            const Ticks duration = problem.duration[row + d];
            finish[d] = duration == impossible ? never : later(ready[row + d], duration);
            earliest[v] = std::min(earliest[v], finish[d]);
        }
        for (std::int32_t t = problem.tensor_first[v]; t < problem.tensor_first[v + 1]; ++t) {
            for (int d = 0; d < devices; ++d) {
                arrival[d] = finish[d];
                for (int s = 0; s < devices; ++s)
                    if (s != d && finish[s] < arrival[d])
                        arrival[d] = std::min(arrival[d], later(finish[s], crossing_ticks(problem, t, s, d, crossing)));
            }
            for (std::int32_t at = problem.consumer_first[t]; at < problem.consumer_first[t + 1]; ++at) {
                Ticks* reader = &ready[static_cast<std::size_t>(problem.consumer[at]) * devices];
                for (int d = 0; d < devices; ++d) reader[d] = std::max(reader[d], arrival[d]);
            }
        }
    }
    return earliest;
}

}  // namespace stead
