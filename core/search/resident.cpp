#include "search/resident.h"

#include <algorithm>
#include <numeric>

namespace stead {

WeightTables::WeightTables(const Problem& problem, const ResidentLimits& limits)
    : used(transposed(problem.operators, problem.weight_user_first, problem.weight_user)) {
    const double all = std::accumulate(problem.weight_bytes.begin(), problem.weight_bytes.end(), 0.0) +
                       std::accumulate(limits.held_bytes.begin(), limits.held_bytes.end(), 0.0);
    ample = std::ranges::all_of(limits.room_bytes, [&](std::int64_t room) { return static_cast<double>(room) > all; });
}

Resident::Resident(const Problem& problem, const WeightTables& tables, const ResidentLimits& limits)
    : problem_(problem), tables_(tables), limits_(limits), bytes_(problem.devices) {}

void Resident::load(const DeviceIndex* placement) {
    if (tables_.ample) return;
    users_.clear(problem_.weights, problem_.devices);
    std::ranges::fill(bytes_, 0);
    for (std::int32_t v = 0; v < problem_.operators; ++v) add(v, placement[v]);
}

void Resident::move(std::int32_t v, int from, int to) {
    if (tables_.ample) return;
    remove(v, from);
    add(v, to);
}

std::int64_t Resident::overflow() const {
    if (tables_.ample) return 0;
    std::int64_t over = 0;
    for (std::size_t d = 0; d < bytes_.size(); ++d)
        over += std::max<std::int64_t>(0, bytes_[d] - limits_.room_bytes[d]);
    return over;
}

void Resident::add(std::int32_t v, int d) {
    bytes_[d] += limits_.held_bytes[v];
    for (const std::int32_t w : tables_.used[v])
        if (users_.add(w, d)) bytes_[d] += problem_.weight_bytes[w];
}

void Resident::remove(std::int32_t v, int d) {
    bytes_[d] -= limits_.held_bytes[v];
    for (const std::int32_t w : tables_.used[v])
        if (users_.remove(w, d)) bytes_[d] -= problem_.weight_bytes[w];
}

}  // namespace stead
