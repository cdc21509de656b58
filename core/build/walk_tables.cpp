#include "build/walk_tables.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "base/fail.h"

namespace stead {

namespace {

double within(double x, double limit) { return std::clamp(x, -limit, limit); }

}  // namespace

WalkTables::WalkTables(const Problem& problem, std::span<const std::int32_t> unit_of,
                       std::span<const std::int32_t> forward)
    : list(problem, unit_of), forward_of(forward.begin(), forward.end()), optimistic(optimistic_costs(problem)),
      move(mean_transfers(problem)) {
    if (static_cast<std::int64_t>(forward.size()) != problem.operators)
        fail("forward_of needs ", problem.operators, " entries, one per operator, got ", forward.size());
    for (const std::int32_t v : forward)
        if (v < 0 || v >= problem.operators)
            fail("forward_of has an operator ", v, ", there are ", problem.operators, " from 0");
    for (const Average average : {Average::mean, Average::min, Average::best})
        rank[static_cast<std::size_t>(average)] = upward_ranks(problem, average);
    measure_operators();
    measure_horizon();
    look_around();
    describe();
}

void WalkTables::measure_operators() {
    const Problem& p = problem();
    const int k = p.devices;
    length.assign(p.operators, 0.0);
    unit_ticks.assign(std::int64_t{list.units()} * k, 0);
    unit_mean.assign(list.units(), 0.0);
    total = 0.0;
    std::int64_t busy = 0;
    for (std::int32_t v = 0; v < p.operators; ++v) {
        int count = 0;
        for (int d = 0; d < k; ++d) {
            const Ticks ticks = p.duration[std::int64_t{v} * k + d];
            if (ticks == impossible) continue;
            length[v] += static_cast<double>(ticks);
            ++count;
            if (list.allowed[list.unit_of[v]] >> d & 1) unit_ticks[std::int64_t{list.unit_of[v]} * k + d] += ticks;
        }
        if (count) length[v] /= count;
        unit_mean[list.unit_of[v]] += length[v];
        total += length[v];
        busy += length[v] > 0;
    }
    total += 1.0;
    typical = total / static_cast<double>(std::max<std::int64_t>(1, busy)) + 1.0;
}

/// No schedule is shorter than the longest path or an even share of all work, each operator where it is fastest.
void WalkTables::measure_horizon() {
    const Problem& p = problem();
    std::vector<double> path(p.operators, 0.0);
    bare_rank.assign(p.operators, 0.0);
    double longest = 0.0, work = 0.0;
    for (std::int32_t v = p.operators - 1; v >= 0; --v) {
        const Ticks* const row = &p.duration[std::int64_t{v} * p.devices];
        const Ticks least = *std::min_element(row, row + p.devices);
        double behind = 0.0, bare = 0.0;
        for (std::int32_t t = p.tensor_first[v]; t < p.tensor_first[v + 1]; ++t)
            for (std::int32_t i = p.consumer_first[t]; i < p.consumer_first[t + 1]; ++i) {
                behind = std::max(behind, path[p.consumer[i]]);
                bare = std::max(bare, bare_rank[p.consumer[i]]);
            }
        const double own = least == impossible ? 0.0 : static_cast<double>(least);
        path[v] = own + behind;
        bare_rank[v] = length[v] + bare;
        longest = std::max(longest, path[v]);
        work += own;
    }
    horizon = std::max(longest, work / p.devices) + 1.0;
}

void WalkTables::look_around() {
    const Problem& p = problem();
    const std::vector<double>& mean_rank = rank_by(Average::mean);
    incoming.assign(p.operators, 0.0);
    outgoing.assign(p.operators, 0.0);
    readers.assign(p.operators, 0);
    favourite.assign(p.operators, -1);
    for (std::int32_t v = 0; v < p.operators; ++v) {
        longest_rank = std::max(longest_rank, mean_rank[v]);
        for (std::int32_t t = p.tensor_first[v]; t < p.tensor_first[v + 1]; ++t) {
            outgoing[v] += move[t];
            readers[v] += p.consumer_first[t + 1] - p.consumer_first[t];
            for (std::int32_t i = p.consumer_first[t]; i < p.consumer_first[t + 1]; ++i) {
                const std::int32_t c = p.consumer[i];
                incoming[c] += move[t];
                if (favourite[v] < 0 || mean_rank[c] > mean_rank[favourite[v]]) favourite[v] = c;
            }
        }
    }
}

void WalkTables::describe() {
    const Problem& p = problem();
    double moved = 1.0, unlike = 0.0;
    for (const double ticks : move) moved += ticks;
    for (std::int32_t v = 0; v < p.operators; ++v) {
        double least = std::numeric_limits<double>::infinity(), most = 0.0;
        for (int d = 0; d < p.devices; ++d) {
            const Ticks ticks = p.duration[std::int64_t{v} * p.devices + d];
            if (ticks == impossible) continue;
            least = std::min(least, static_cast<double>(ticks));
            most = std::max(most, static_cast<double>(ticks));
        }
        if (most > 0) unlike += lined_log2((most + 1.0) / (least + 1.0));
    }
    double held = 0.0, room = 1.0;
    for (const std::int64_t bytes : p.weight_bytes) held += static_cast<double>(bytes);
    for (const std::int64_t bytes : list.held_bytes) held += static_cast<double>(bytes);
    for (const std::int64_t bytes : p.memory_bytes) room += static_cast<double>(bytes);
    const double tensors = std::max(1, p.tensors), operators = std::max(1, p.operators);
    context = {lined_log2(p.devices) - 2.0,
               within(lined_log2(total / longest_rank / p.devices), 3.0),
               within(lined_log2(moved / tensors / typical) / 4.0, 2.0),
               lined_log2(operators) / 4.0 - 2.0,
               within(unlike / operators, 3.0),
               p.memory_is_ample ? 0.0 : std::min(2.0, held / room)};
}

}  // namespace stead
