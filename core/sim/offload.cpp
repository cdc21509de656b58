#include "sim/offload.h"

#include <algorithm>

namespace stead {

Offload::Offload(const Problem& problem, bool overlapping)
    : problem_(problem), overlapping_(overlapping),
      entries_(static_cast<std::size_t>(problem.operators) * problem.devices), unit_of_(problem.operators),
      member_(problem.operators) {}

Offload::Outcome Offload::evaluate(const DeviceIndex* placement) {
    if (find_unsupported(problem_, placement).status != Status::ok) return {Status::unsupported, -1};
    count_entries(placement);
    make_units(placement);
    if (!add_lengths(placement)) return {Status::unreachable, -1};
    list_members();
    return settle();
}

void Offload::count_entries(const DeviceIndex* placement) {
    const std::int64_t k = problem_.devices;
    std::fill(entries_.begin(), entries_.end(), 0);
    for (std::int32_t v = 0; v < problem_.operators; ++v) {
        std::int32_t* const mine = &entries_[v * k];
        const int d = placement[v];
        mine[d] = std::max(mine[d], 1);
        for (std::int32_t i = problem_.consumer_first[problem_.tensor_first[v]];
             i < problem_.consumer_first[problem_.tensor_first[v + 1]]; ++i) {
            const std::int32_t reader = problem_.consumer[i];
            std::int32_t* const theirs = &entries_[reader * k];
            const int entered = placement[reader];
            for (std::int64_t j = 0; j < k; ++j) theirs[j] = std::max(theirs[j], mine[j]);
            if (entered != d) theirs[entered] = std::max(theirs[entered], mine[entered] + 1);
        }
    }
}

/// Numbers the calls device by device in order, then the operators of host devices.
void Offload::make_units(const DeviceIndex* placement) {
    const std::int64_t k = problem_.devices;
    std::int32_t first[max_devices] = {}, calls[max_devices] = {}, count = 0;
    for (std::int32_t v = 0; v < problem_.operators; ++v) {
        const int d = placement[v];
        if (!problem_.host[d]) calls[d] = std::max(calls[d], entries_[v * k + d]);
    }
    for (int d = 0; d < problem_.devices; ++d) {
        first[d] = count;
        count += calls[d];
    }
    for (std::int32_t v = 0; v < problem_.operators; ++v) {
        const int d = placement[v];
        unit_of_[v] = problem_.host[d] ? count++ : first[d] + entries_[v * k + d] - 1;
    }
    units_.assign(count, Unit{});
    if (overlapping_) return;
    for (int d = 0; d < problem_.devices; ++d)
        for (std::int32_t u = first[d]; u + 1 < first[d] + calls[d]; ++u) {
            units_[u].leads_to_next = true;
            ++units_[u + 1].need;
        }
}

/// Lengths of all units, and how many readings from other units each waits for; false if a tensor has no way.
bool Offload::add_lengths(const DeviceIndex* placement) {
    bool reachable = true;
    const auto move = [&](Unit& unit, std::int32_t t, const Link& way) {
        if (way.latency == impossible) reachable = false;
        unit.length += problem_.wire(t, way) + way.latency;  // free for host devices
    };
    last_read_.assign(units_.size(), -1);
    for (std::int32_t v = 0; v < problem_.operators; ++v) {
        Unit& unit = units_[unit_of_[v]];
        unit.length += problem_.duration[problem_.cell(v, placement[v])];
        for (std::int32_t t = problem_.tensor_first[v]; t < problem_.tensor_first[v + 1]; ++t) {
            bool written = false;
            for (std::int32_t i = problem_.consumer_first[t]; i < problem_.consumer_first[t + 1]; ++i) {
                const std::int32_t reader = problem_.consumer[i], other = unit_of_[reader];
                if (other == unit_of_[v]) continue;
                ++units_[other].need;
                if (!written) move(unit, t, problem_.host_write[placement[v]]);
                written = true;
                if (last_read_[other] != t) move(units_[other], t, problem_.host_read[placement[reader]]);
                last_read_[other] = t;
            }
        }
    }
    return reachable;
}

void Offload::list_members() {
    // Counted two places further on, so that filling moves each begin to where it belongs.
    member_first_.assign(units_.size() + 2, 0);
    for (const std::int32_t u : unit_of_) ++member_first_[u + 2];
    for (std::size_t u = 0; u < units_.size(); ++u) member_first_[u + 2] += member_first_[u + 1];
    for (std::int32_t v = 0; v < problem_.operators; ++v) member_[member_first_[unit_of_[v] + 1]++] = v;
}

Offload::Outcome Offload::settle() {
    startable_.clear();
    for (std::size_t u = 0; u < units_.size(); ++u)
        if (units_[u].need == 0) startable_.push_back(static_cast<std::int32_t>(u));
    Ticks latency = 0;
    std::size_t settled = 0;
    for (; !startable_.empty(); ++settled) {
        const std::int32_t u = startable_.back();
        startable_.pop_back();
        const Ticks time = units_[u].start + units_[u].length;
        latency = std::max(latency, time);
        finish(u, time);
    }
    if (settled < units_.size()) return {Status::cyclic, -1};
    return {Status::ok, latency};
}

void Offload::finish(std::int32_t u, Ticks time) {
    if (units_[u].leads_to_next) wait_for(u + 1, time);
    for (std::int32_t m = member_first_[u]; m < member_first_[u + 1]; ++m) {
        const std::int32_t v = member_[m];
        for (std::int32_t i = problem_.consumer_first[problem_.tensor_first[v]];
             i < problem_.consumer_first[problem_.tensor_first[v + 1]]; ++i) {
            const std::int32_t other = unit_of_[problem_.consumer[i]];
            if (other != u) wait_for(other, time);
        }
    }
}

void Offload::wait_for(std::int32_t u, Ticks time) {
    units_[u].start = std::max(units_[u].start, time);
    if (--units_[u].need == 0) startable_.push_back(u);
}

}  // namespace stead
