#include "build/builder.h"

#include <numeric>
#include <optional>
#include <queue>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "base/placement.h"
#include "build/ranks.h"
#include "sim/policies/program_order.h"

namespace stead {

ListSchedule Builder::build() {
    switch (variant_.rule) {
        case ListRule::heft: in_order(by_rank(ranks_.of(variant_.average))); break;
        case ListRule::peft: by_optimistic_costs(); break;
        case ListRule::dfs_sticky: in_order(depth_first(problem_, ranks_.of(variant_.average))); break;
        case ListRule::etf:
        case ListRule::sct: earliest_first(); break;
    }
    return result();
}

void Builder::in_order(const std::vector<std::int32_t>& order) {
    for (const std::int32_t v : order) run(v, choose(v));
}

/// Of what is ready, what has the highest mean in the optimistic cost table; that mean may rise along a tensor.
void Builder::by_optimistic_costs() {
    const int k = problem_.devices;
    using Entry = std::pair<double, std::int32_t>;  // rank, -operator
    std::priority_queue<Entry> ready;
    const auto push = [&](std::int32_t v) {
        const double* const row = &ranks_.optimistic[std::int64_t{v} * k];
        ready.emplace(std::accumulate(row, row + k, 0.0) / k, -v);
    };
    std::vector<std::int32_t> need = problem_.inputs;
    for (const std::int32_t v : problem_.sources) push(v);
    while (!ready.empty()) {
        const std::int32_t v = -ready.top().second;
        ready.pop();
        run(v, choose(v));
        for (std::int32_t t = problem_.tensor_first[v]; t < problem_.tensor_first[v + 1]; ++t)
            for (std::int32_t i = problem_.consumer_first[t]; i < problem_.consumer_first[t + 1]; ++i)
                if (--need[problem_.consumer[i]] == 0) push(problem_.consumer[i]);
    }
}

double Builder::score(std::int32_t v, int d, const Offer& offer) const {
    const double behind =
        variant_.rule == ListRule::peft ? ranks_.optimistic[std::int64_t{v} * problem_.devices + d] : 0.0;
    return static_cast<double>(offer.finish) + (variant_.bias - 1.0) * static_cast<double>(offer.moved) + behind +
           waste(v, d);
}

double Builder::waste(std::int32_t v, int d) const {
    return variant_.thrift > 0.0 ? variant_.thrift * ranks_.waste[std::int64_t{v} * problem_.devices + d] : 0.0;
}

/// The device of the unit, or for its first operator the best one: reachable, with room, then the least score.
int Builder::choose(std::int32_t v) {
    const std::int32_t unit = tables_.unit_of[v];
    if (device_of_unit_[unit] >= 0) return device_of_unit_[unit];
    std::int64_t short_bytes[mask_devices];
    room_.look(unit, device_of_unit_, short_bytes);
    using Key = std::tuple<bool, std::int64_t, double, Ticks, Ticks>;
    std::optional<Key> least;
    int chosen = 0;
    for (int d = 0; d < problem_.devices; ++d) {
        if (!(tables_.allowed[unit] >> d & 1)) continue;
        const Offer offer = timeline_.offer(v, d);
        // Among equals the device that has been busy longest: the others stay free for what comes in parallel.
        const double value = score(v, d, offer) + variant_.foresight * static_cast<double>(pending(unit, v, d));
        const Key key{!offer.possible, short_bytes[d], value, offer.finish, -timeline_.device_end(d)};
        if (least && !(key < *least)) continue;
        least = key;
        chosen = d;
    }
    return chosen;
}

/// Work that would still lie before device d: the rest of `unit`, and of the units that are there already. A unit of
/// one operator leaves no rest and is compared by its finish alone.
Ticks Builder::pending(std::int32_t unit, std::int32_t v, int d) const {
    const auto members = tables_.members[unit];
    if (members.size() == 1) return 0;
    Ticks rest = pending_[d] - problem_.duration[std::int64_t{v} * problem_.devices + d];
    for (const std::int32_t u : members) rest += problem_.duration[std::int64_t{u} * problem_.devices + d];
    return rest;
}

void Builder::run(std::int32_t v, int d) {
    pace_.count(problem_.devices);
    if (watch_.stopped()) throw Late{};
    const std::int32_t unit = tables_.unit_of[v];
    if (device_of_unit_[unit] < 0) {
        room_.take(unit, d, device_of_unit_);
        if (tables_.members[unit].size() > 1) pending_[d] = pending(unit, v, d);
        device_of_unit_[unit] = d;
    } else {
        pending_[d] -= problem_.duration[std::int64_t{v} * problem_.devices + d];
    }
    timeline_.run(v, d);
}

ListSchedule Builder::result() const {
    ListSchedule result{timeline_.devices(), timeline_.order()};
    if (static_cast<std::int32_t>(result.order.size()) != problem_.operators)
        throw std::logic_error("a list schedule left operators out");
    if (find_obstacle(problem_, result.devices.data()).status != Status::ok) return result;
    ProgramOrder engine(problem_, false);
    const Orders orders{.order = result.order, .transfer_order = {}};
    result.ticks = engine.simulate(result.devices.data(), orders, never, nullptr);
    return result;
}

}  // namespace stead
