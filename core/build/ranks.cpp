#include "build/ranks.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "bounds/area.h"

namespace stead {

namespace {

/// Cost of each operator as ranks see it.
std::vector<double> average_durations(const Problem& problem, Average average) {
    const int k = problem.devices;
    std::vector<double> total(k, 0.0), result(problem.operators, 0.0);
    const auto fold = [&](std::int32_t v) {
        double sum = 0.0, least = std::numeric_limits<double>::infinity();
        int count = 0;
        for (int d = 0; d < k; ++d) {
            const Ticks ticks = problem.duration[std::int64_t{v} * k + d];
            if (ticks == impossible) continue;
            sum += static_cast<double>(ticks);
            least = std::min(least, static_cast<double>(ticks));
            ++count;
        }
        return std::pair(count ? sum / count : 0.0, count ? least : 0.0);
    };
    for (std::int32_t v = 0; v < problem.operators; ++v) {
        const auto [mean, least] = fold(v);
        result[v] = average == Average::min ? least : mean;
        for (int d = 0; d < k; ++d) {
            const Ticks ticks = problem.duration[std::int64_t{v} * k + d];
            total[d] += ticks == impossible ? mean * k : static_cast<double>(ticks);
        }
    }
    if (average != Average::best) return result;
    const auto best = std::min_element(total.begin(), total.end()) - total.begin();
    for (std::int32_t v = 0; v < problem.operators; ++v) {
        const Ticks ticks = problem.duration[std::int64_t{v} * k + best];
        if (ticks != impossible) result[v] = static_cast<double>(ticks);
    }
    return result;
}

struct Ways {
    double mean_latency = 0.0, mean_per_byte = 0.0, mean_hops = 0.0;
    double least_latency = 0.0, least_per_byte = 0.0, least_hops = 0.0;
};

Ways summed_up(const Problem& problem) {
    Ways ways;
    int count = 0;
    for (int s = 0; s < problem.devices; ++s)
        for (int d = 0; d < problem.devices; ++d) {
            const Link& way = problem.link(s, d);
            if (s == d || way.latency == impossible) continue;
            const auto latency = static_cast<double>(way.latency), hops = static_cast<double>(way.hops);
            ways.least_latency = count ? std::min(ways.least_latency, latency) : latency;
            ways.least_per_byte = count ? std::min(ways.least_per_byte, way.ps_per_byte) : way.ps_per_byte;
            ways.least_hops = count ? std::min(ways.least_hops, hops) : hops;
            ways.mean_latency += latency;
            ways.mean_per_byte += way.ps_per_byte;
            ways.mean_hops += hops;
            ++count;
        }
    if (count) {
        ways.mean_latency /= count;
        ways.mean_per_byte /= count;
        ways.mean_hops /= count;
    }
    return ways;
}

std::vector<double> average_transfers(const Problem& problem, Average average) {
    const Ways ways = summed_up(problem);
    const bool least = average == Average::min;
    const double latency = least ? ways.least_latency : ways.mean_latency;
    const double per_byte = least ? ways.least_per_byte : ways.mean_per_byte;
    const double hops = least ? ways.least_hops : ways.mean_hops;
    std::vector<double> result(problem.tensors);
    for (std::int32_t t = 0; t < problem.tensors; ++t)
        result[t] = latency + (problem.timed_by_tensor() ? hops * static_cast<double>(problem.tensor_ticks[t])
                                                         : per_byte * static_cast<double>(problem.tensor_bytes[t]));
    return result;
}

}  // namespace

std::vector<double> wasted_time(const Problem& problem) {
    const std::int64_t k = problem.devices;
    const std::vector<std::int64_t> no_bytes(problem.operators), no_room(k);
    const std::vector<std::uint8_t> busy(k, 1);
    const Work work{.rows = static_cast<std::size_t>(problem.operators),
                    .devices = problem.devices,
                    .ticks = problem.duration,
                    .bytes = no_bytes,
                    .capacity_bytes = no_room,
                    .busy = busy};
    const std::vector<std::int64_t> prices = area(work, false).prices.time;
    const double whole = std::max(1.0, std::accumulate(prices.begin(), prices.end(), 0.0));
    std::vector<double> waste(problem.duration.size(), std::numeric_limits<double>::infinity());
    for (std::int64_t v = 0; v < problem.operators; ++v) {
        double* const row = &waste[v * k];
        for (std::int64_t d = 0; d < k; ++d)
            if (const Ticks ticks = problem.duration[v * k + d]; ticks != impossible)
                row[d] = static_cast<double>(ticks) * static_cast<double>(prices[d]) / whole;
        const double least = *std::min_element(row, row + k);
        std::for_each(row, row + k, [&](double& one) { one -= least; });  // units may lack a device that operators have
    }
    return waste;
}

std::vector<double> mean_transfers(const Problem& problem) { return average_transfers(problem, Average::mean); }

std::vector<double> upward_ranks(const Problem& problem, Average average) {
    std::vector<double> rank = average_durations(problem, average);
    const std::vector<double> move = average_transfers(problem, average);
    for (std::int32_t v = problem.operators - 1; v >= 0; --v) {
        double longest = 0.0;
        for (std::int32_t t = problem.tensor_first[v]; t < problem.tensor_first[v + 1]; ++t)
            for (std::int32_t i = problem.consumer_first[t]; i < problem.consumer_first[t + 1]; ++i)
                longest = std::max(longest, move[t] + rank[problem.consumer[i]]);
        rank[v] += longest;
    }
    return rank;
}

std::vector<double> optimistic_costs(const Problem& problem) {
    const int k = problem.devices;
    const std::vector<double> move = mean_transfers(problem);
    std::vector<double> table(std::int64_t{problem.operators} * k, 0.0);
    std::vector<double> best(problem.operators);  // the least of table + duration over all devices
    const auto behind = [&](std::int32_t c, int d) {
        const Ticks ticks = problem.duration[std::int64_t{c} * k + d];
        return ticks == impossible ? std::numeric_limits<double>::infinity()
                                   : table[std::int64_t{c} * k + d] + static_cast<double>(ticks);
    };
    for (std::int32_t v = problem.operators - 1; v >= 0; --v) {
        double* const row = &table[std::int64_t{v} * k];
        for (std::int32_t t = problem.tensor_first[v]; t < problem.tensor_first[v + 1]; ++t)
            for (std::int32_t i = problem.consumer_first[t]; i < problem.consumer_first[t + 1]; ++i) {
                const std::int32_t c = problem.consumer[i];
                // Elsewhere costs the same transfer wherever it is, so one minimum over all devices serves every d.
                for (int d = 0; d < k; ++d) row[d] = std::max(row[d], std::min(behind(c, d), best[c] + move[t]));
            }
        best[v] = behind(v, 0);
        for (int d = 1; d < k; ++d) best[v] = std::min(best[v], behind(v, d));
    }
    return table;
}

std::vector<std::int32_t> by_rank(const std::vector<double>& rank) {
    std::vector<std::int32_t> order(rank.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return rank[a] > rank[b]; });
    return order;
}

std::vector<std::int32_t> depth_first(const Problem& problem, const std::vector<double>& rank) {
    std::vector<std::int32_t> need = problem.inputs, order, waiting, fresh;
    order.reserve(problem.operators);
    // The last one is taken first: the highest rank on top, the lower index among equals.
    const auto push = [&](std::vector<std::int32_t>& ready) {
        std::sort(ready.begin(), ready.end(), [&](std::int32_t a, std::int32_t b) {
            return rank[a] != rank[b] ? rank[a] < rank[b] : a > b;
        });
        waiting.insert(waiting.end(), ready.begin(), ready.end());
    };
    fresh = problem.sources;
    push(fresh);
    while (!waiting.empty()) {
        const std::int32_t v = waiting.back();
        waiting.pop_back();
        order.push_back(v);
        fresh.clear();
        for (std::int32_t t = problem.tensor_first[v]; t < problem.tensor_first[v + 1]; ++t)
            for (std::int32_t i = problem.consumer_first[t]; i < problem.consumer_first[t + 1]; ++i)
                if (--need[problem.consumer[i]] == 0) fresh.push_back(problem.consumer[i]);
        push(fresh);
    }
    return order;
}

std::vector<std::int32_t> by_level(const Problem& problem) {
    std::vector<std::int32_t> level(problem.operators, 0), order(problem.operators);
    for (std::int32_t v = 0; v < problem.operators; ++v)
        for (std::int32_t t = problem.tensor_first[v]; t < problem.tensor_first[v + 1]; ++t)
            for (std::int32_t i = problem.consumer_first[t]; i < problem.consumer_first[t + 1]; ++i)
                level[problem.consumer[i]] = std::max(level[problem.consumer[i]], level[v] + 1);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return level[a] < level[b]; });
    return order;
}

}  // namespace stead
