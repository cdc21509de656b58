#include "search/resident.h"

#include <algorithm>
#include <numeric>

namespace stead {

WeightTables::WeightTables(const Problem& problem, const ResidentLimits& limits) : used_first(problem.operators + 1) {
    for (const std::int32_t v : problem.weight_user) ++used_first[v + 1];
    std::partial_sum(used_first.begin(), used_first.end(), used_first.begin());
    std::vector<std::int32_t> next(used_first.begin(), used_first.end() - 1);
    used.resize(problem.weight_user.size());
    for (std::int32_t w = 0; w < problem.weights; ++w)
        for (std::int32_t i = problem.weight_user_first[w]; i < problem.weight_user_first[w + 1]; ++i)
            used[next[problem.weight_user[i]]++] = w;
    const double all = std::accumulate(problem.weight_bytes.begin(), problem.weight_bytes.end(), 0.0) +
                       std::accumulate(limits.held_bytes.begin(), limits.held_bytes.end(), 0.0);
    ample = std::ranges::all_of(limits.room_bytes, [&](std::int64_t room) { return static_cast<double>(room) > all; });
}

Resident::Resident(const Problem& problem, const WeightTables& tables, const ResidentLimits& limits)
    : problem_(problem), tables_(tables), limits_(limits), bytes_(problem.devices) {}

void Resident::load(const std::uint8_t* placement) {
    if (tables_.ample) return;
    users_.assign(std::int64_t{problem_.weights} * problem_.devices, 0);
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
    for (std::int32_t i = tables_.used_first[v]; i < tables_.used_first[v + 1]; ++i) {
        const std::int32_t w = tables_.used[i];
        if (users_[std::int64_t{w} * problem_.devices + d]++ == 0) bytes_[d] += problem_.weight_bytes[w];
    }
}

void Resident::remove(std::int32_t v, int d) {
    bytes_[d] -= limits_.held_bytes[v];
    for (std::int32_t i = tables_.used_first[v]; i < tables_.used_first[v + 1]; ++i) {
        const std::int32_t w = tables_.used[i];
        if (--users_[std::int64_t{w} * problem_.devices + d] == 0) bytes_[d] -= problem_.weight_bytes[w];
    }
}

}  // namespace stead
