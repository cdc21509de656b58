#include "build/guide.h"

#include <algorithm>

#include "base/fail.h"
#include "base/placement.h"
#include "build/timeline.h"
#include "sim/order_checks.h"

namespace stead {

namespace {

/// Ticks of tensor t from one device to another; `unreachable` where there is no way.
Ticks moved(const Problem& problem, std::int32_t t, int source, int target, Ticks unreachable) {
    if (source == target) return 0;
    const Link& way = problem.link(source, target);
    return way.latency == impossible ? unreachable : problem.wire(t, way) + way.latency;
}

/// Calls visit(tensor, reader) for all that v writes.
template <class Visit>
void for_each_reader(const Problem& problem, std::int32_t v, Visit visit) {
    for (std::int32_t t = problem.tensor_first[v]; t < problem.tensor_first[v + 1]; ++t)
        for (std::int32_t i = problem.consumer_first[t]; i < problem.consumer_first[t + 1]; ++i)
            visit(t, problem.consumer[i]);
}

std::vector<DeviceIndex> checked(const WalkTables& tables, std::span<const DeviceIndex> devices,
                                 std::span<const std::int32_t> order) {
    const Problem& problem = tables.problem();
    check_placement(problem, devices.data());
    if (find_obstacle(problem, devices.data()).status != Status::ok) fail("a guide cannot run where it is");
    OrderCheck(problem).topological(order);
    return {devices.begin(), devices.end()};
}

}  // namespace

std::vector<double> placed_ranks(const Problem& problem, std::span<const DeviceIndex> devices) {
    std::vector<double> rank(problem.operators);
    for (std::int32_t v = problem.operators - 1; v >= 0; --v) {
        double longest = 0.0;
        for_each_reader(problem, v, [&](std::int32_t t, std::int32_t c) {
            const Ticks ticks = moved(problem, t, devices[v], devices[c], 0);
            longest = std::max(longest, rank[c] + static_cast<double>(ticks));
        });
        const Ticks own = problem.duration[std::int64_t{v} * problem.devices + devices[v]];
        rank[v] = longest + static_cast<double>(own);
    }
    return rank;
}

std::vector<double> busy_ranks(const Problem& problem, std::span<const DeviceIndex> devices,
                               std::span<const std::int32_t> order) {
    std::vector<Ticks> until(problem.operators, 0);  // the end of the graph, from the start of each operator
    std::vector<IdleTime> idle(problem.devices);
    for (auto at = order.rbegin(); at != order.rend(); ++at) {
        const std::int32_t v = *at;
        const int d = devices[v];
        Ticks ready = 0;
        for_each_reader(problem, v, [&](std::int32_t t, std::int32_t c) {
            ready = std::max(ready, until[c] + moved(problem, t, d, devices[c], 0));
        });
        const Ticks length = problem.duration[std::int64_t{v} * problem.devices + d];
        const Ticks begin = idle[d].earliest(ready, length, true);
        until[v] = begin + length;
        idle[d].take(begin, until[v]);
    }
    return {until.begin(), until.end()};
}

Guide::Guide(const WalkTables& tables, std::span<const DeviceIndex> devices, std::span<const std::int32_t> order)
    : tables_(tables), devices_(checked(tables, devices, order)), placed_(placed_ranks(tables.problem(), devices_)),
      busy_(busy_ranks(tables.problem(), devices_, order)) {}

double Guide::behind(std::int32_t v, int d) const {
    constexpr int most_readers = 64;
    const Problem& problem = tables_.problem();
    const std::int32_t unit = tables_.list.unit_of[v];
    double longest = 0.0;
    int looked = 0;
    for_each_reader(problem, v, [&](std::int32_t t, std::int32_t c) {
        if (++looked > most_readers) return;
        const int there = tables_.list.unit_of[c] == unit ? d : devices_[c];
        const Ticks ticks = moved(problem, t, d, there, static_cast<Ticks>(tables_.horizon));
        longest = std::max(longest, placed_[c] + static_cast<double>(ticks));
    });
    return longest;
}

}  // namespace stead
