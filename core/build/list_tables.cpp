#include "build/list_tables.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/fail.h"

namespace stead {

namespace {

/// Turns pairs (row of each item, item) into rows; items keep their order.
template <class RowOf>
Rows rows_of(std::int32_t rows, std::int64_t items, RowOf row_of) {
    Rows result;
    result.first.assign(rows + 1, 0);
    result.items.resize(items);
    for (std::int64_t i = 0; i < items; ++i) ++result.first[row_of(i) + 1];
    std::partial_sum(result.first.begin(), result.first.end(), result.first.begin());
    return result;
}

/// The rows of a relation that is stored by column: row `item` has column c for each c that lists it.
Rows transposed(std::int32_t rows, const std::vector<std::int32_t>& first, const std::vector<std::int32_t>& item) {
    Rows result = rows_of(rows, static_cast<std::int64_t>(item.size()), [&](std::int64_t i) { return item[i]; });
    std::vector<std::int32_t> next(result.first.begin(), result.first.end() - 1);
    for (std::size_t column = 0; column + 1 < first.size(); ++column)
        for (std::int32_t i = first[column]; i < first[column + 1]; ++i)
            result.items[next[item[i]]++] = static_cast<std::int32_t>(column);
    return result;
}

/// Adds a row with each of `items` once.
void append_distinct(std::vector<std::int32_t>& items, Rows& rows) {
    std::sort(items.begin(), items.end());
    items.erase(std::unique(items.begin(), items.end()), items.end());
    rows.items.insert(rows.items.end(), items.begin(), items.end());
    rows.first.push_back(static_cast<std::int32_t>(rows.items.size()));
}

std::int32_t count_units(const Problem& problem, std::span<const std::int32_t> unit_of) {
    if (static_cast<std::int64_t>(unit_of.size()) != problem.operators)
        fail("unit_of needs ", problem.operators, " entries, one per operator, got ", unit_of.size());
    std::int32_t count = 0;
    for (const std::int32_t unit : unit_of) {
        if (unit < 0 || unit >= problem.operators) fail("unit_of has a unit ", unit, ", numbers begin at 0");
        count = std::max(count, unit + 1);
    }
    return count;
}

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

ListTables::ListTables(const Problem& given, std::span<const std::int32_t> units)
    : problem(given), unit_of(units.begin(), units.end()),
      reads(transposed(given.operators, given.consumer_first, given.consumer)) {
    take_units(units);
    take_memory();
}

void ListTables::take_units(std::span<const std::int32_t> units) {
    const std::int32_t count = count_units(problem, units);
    const int k = problem.devices;
    members = rows_of(count, problem.operators, [&](std::int64_t v) { return unit_of[v]; });
    std::vector<std::int32_t> next(members.first.begin(), members.first.end() - 1);
    for (std::int32_t v = 0; v < problem.operators; ++v) members.items[next[unit_of[v]]++] = v;
    allowed.assign(count, k == max_devices ? ~std::uint64_t{0} : (std::uint64_t{1} << k) - 1);
    for (std::int32_t v = 0; v < problem.operators; ++v)
        for (int d = 0; d < k; ++d)
            if (problem.duration[std::int64_t{v} * k + d] == impossible)
                allowed[unit_of[v]] &= ~(std::uint64_t{1} << d);
    for (std::int32_t unit = 0; unit < count; ++unit) {
        if (members[unit].empty()) fail("unit_of leaves out unit ", unit);
        if (!allowed[unit]) fail("no device can run all operators of unit ", unit);
    }
}

void ListTables::take_memory() {
    const std::int32_t count = static_cast<std::int32_t>(allowed.size());
    std::vector<std::uint8_t> long_lived(problem.tensors);
    held_bytes.assign(count, 0);
    for (std::int32_t t = 0; t < problem.tensors; ++t) {
        const std::int32_t p = problem.producer[t], end = problem.consumer_first[t + 1];
        long_lived[t] = problem.tensor_kept[t];
        for (std::int32_t i = problem.consumer_first[t]; i < end && !long_lived[t]; ++i)
            long_lived[t] = problem.phase[problem.consumer[i]] > problem.phase[p];
        if (long_lived[t]) held_bytes[unit_of[p]] += problem.tensor_bytes[t];
    }
    const Rows weights_of = transposed(problem.operators, problem.weight_user_first, problem.weight_user);
    std::vector<std::int32_t> used, read;
    weights.first.assign(1, 0);
    long_reads.first.assign(1, 0);
    for (std::int32_t unit = 0; unit < count; ++unit) {
        used.clear();
        read.clear();
        for (const std::int32_t v : members[unit]) {
            used.insert(used.end(), weights_of[v].begin(), weights_of[v].end());
            for (const std::int32_t t : reads[v])
                if (long_lived[t] && unit_of[problem.producer[t]] != unit) read.push_back(t);
        }
        append_distinct(used, weights);
        append_distinct(read, long_reads);
    }
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
