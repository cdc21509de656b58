#include "search/blocks.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace stead {
namespace {

constexpr int most_levels = 14;
constexpr std::int32_t fewest_parts = 12;

struct Edge {
    std::int32_t a, b;  // parts, a < b
    double weight;
};

/// Adds up parallel edges and drops loops.
std::vector<Edge> united(std::vector<Edge> edges) {
    std::erase_if(edges, [](const Edge& edge) { return edge.a == edge.b; });
    std::ranges::sort(edges, [](const Edge& x, const Edge& y) {
        return std::tie(x.a, x.b, x.weight) < std::tie(y.a, y.b, y.weight);
    });
    std::size_t kept = 0;
    for (const Edge& edge : edges) {
        if (kept > 0 && edges[kept - 1].a == edge.a && edges[kept - 1].b == edge.b)
            edges[kept - 1].weight += edge.weight;
        else
            edges[kept++] = edge;
    }
    edges.resize(kept);
    return edges;
}

std::vector<Edge> relabelled(std::vector<Edge> edges, std::span<const std::int32_t> into) {
    for (Edge& edge : edges) std::tie(edge.a, edge.b) = std::minmax({into[edge.a], into[edge.b]});
    return united(std::move(edges));
}

std::vector<Edge> edges_between(const Problem& problem, std::span<const std::int32_t> label) {
    std::vector<Edge> edges;
    for (std::int32_t t = 0; t < problem.tensors; ++t) {
        const std::int32_t from = label[problem.producer[t]];
        const double weight =
            1.0 + (problem.timed_by_tensor() ? static_cast<double>(problem.tensor_ticks[t])
                                             : static_cast<double>(problem.tensor_bytes[t]));
        const std::int32_t readers = problem.consumer_first[t + 1] - problem.consumer_first[t];
        for (std::int32_t i = problem.consumer_first[t]; i < problem.consumer_first[t + 1]; ++i) {
            const auto [a, b] = std::minmax(from, label[problem.consumer[i]]);
            edges.push_back({a, b, weight / readers});  // it is sent once however many read it
        }
    }
    return united(std::move(edges));
}

std::vector<double> work_of(const Problem& problem, const Partition& parts) {
    std::vector<double> work(parts.count(), 1.0);
    const std::int64_t k = problem.devices;
    for (std::int32_t v = 0; v < problem.operators; ++v) {
        Ticks least = never;
        for (std::int64_t d = 0; d < k; ++d)
            if (problem.duration[v * k + d] != impossible) least = std::min(least, problem.duration[v * k + d]);
        if (least != never) work[parts.label[v]] += static_cast<double>(least);
    }
    return work;
}

/// New labels after greedy matching, heaviest rating first; parts of more than `limit` work are not formed.
std::pair<std::vector<std::int32_t>, std::int32_t> matched(const std::vector<Edge>& edges,
                                                           const std::vector<double>& work, double limit) {
    std::vector<std::pair<double, std::int32_t>> rated(edges.size());
    for (std::size_t e = 0; e < edges.size(); ++e)
        rated[e] = {-edges[e].weight / (work[edges[e].a] * work[edges[e].b]), static_cast<std::int32_t>(e)};
    std::ranges::sort(rated);
    const auto count = static_cast<std::int32_t>(work.size());
    std::vector<std::int32_t> leader(count, -1);
    for (const auto& [rating, e] : rated) {
        const auto [a, b, weight] = edges[e];
        if (leader[a] >= 0 || leader[b] >= 0 || work[a] + work[b] > limit) continue;
        leader[a] = leader[b] = a;
    }
    std::vector<std::int32_t> label(count);
    std::int32_t next = 0;
    for (std::int32_t part = 0; part < count; ++part)
        label[part] = leader[part] < 0 || leader[part] == part ? next++ : label[leader[part]];
    return {std::move(label), next};
}

}  // namespace

Partition::Partition(std::vector<std::int32_t> labels, std::int32_t count)
    : label(std::move(labels)), first(count + 1), member(label.size()) {
    for (const std::int32_t part : label) ++first[part + 1];
    std::partial_sum(first.begin(), first.end(), first.begin());
    std::vector<std::int32_t> next(first.begin(), first.end() - 1);
    for (std::size_t v = 0; v < label.size(); ++v) member[next[label[v]]++] = static_cast<std::int32_t>(v);
}

std::vector<Partition> heavy_edge_levels(const Problem& problem, std::span<const std::int32_t> unit_of) {
    const std::int32_t units = unit_of.empty() ? 0 : *std::ranges::max_element(unit_of) + 1;
    std::vector<Partition> levels;
    levels.emplace_back(std::vector<std::int32_t>(unit_of.begin(), unit_of.end()), units);
    std::vector<Edge> edges = edges_between(problem, levels[0].label);
    std::vector<double> work = work_of(problem, levels[0]);
    const double all = std::accumulate(work.begin(), work.end(), 0.0);
    while (static_cast<int>(levels.size()) < most_levels && levels.back().count() > fewest_parts) {
        const std::int32_t count = levels.back().count();
        auto [into, fewer] = matched(edges, work, 6.0 * all / count);
        if (fewer > 0.95 * count) break;
        std::vector<std::int32_t> label = levels.back().label;
        for (std::int32_t& part : label) part = into[part];
        std::vector<double> joined(fewer);
        for (std::int32_t part = 0; part < count; ++part) joined[into[part]] += work[part];
        work = std::move(joined);
        edges = relabelled(std::move(edges), into);
        levels.emplace_back(std::move(label), fewer);
    }
    return levels;
}

}  // namespace stead
