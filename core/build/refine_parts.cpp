#include "build/refine_parts.h"

#include <algorithm>
#include <limits>

#include "base/fail.h"
#include "base/problem.h"

namespace stead {

namespace {

class Refinement {
public:
    Refinement(const WeighedGraph& graph, std::span<const std::int32_t> part_of, std::span<const std::int64_t> limit,
               int parts)
        : graph_(graph), limit_(limit), parts_(parts), part_of_(part_of.begin(), part_of.end()),
          load_(parts * graph.constraints, 0) {
        for (std::int64_t v = 0; v < graph.vertices(); ++v) add(v, part_of_[v], 1);
    }

    /// One pass over all vertices; whether anything moved.
    bool pass() {
        bool moved = false;
        for (std::int64_t v = 0; v < graph_.vertices(); ++v) {
            const int source = part_of_[v], target = better(v, source);
            if (target == source) continue;
            add(v, source, -1);
            add(v, target, 1);
            part_of_[v] = target;
            moved = true;
        }
        return moved;
    }

    std::vector<std::int32_t> take() { return std::move(part_of_); }

private:
    /// Where `v` is better off; `source` if nowhere.
    int better(std::int64_t v, int source) {
        std::int64_t pull[mask_devices] = {};
        for (std::int64_t i = graph_.first[v]; i < graph_.first[v + 1]; ++i)
            pull[part_of_[graph_.neighbour[i]]] += graph_.edge_weight[i];
        const std::int64_t over = excess(v, source, 0);
        int best = source;
        std::int64_t best_gain = over > 0 ? std::numeric_limits<std::int64_t>::min() : 0;
        for (int p = 0; p < parts_; ++p) {
            if (p == source || !(graph_.allowed[v] >> p & 1) || excess(v, p, 1) > 0) continue;
            const std::int64_t gain = pull[p] - pull[source];
            if (gain <= best_gain) continue;
            best = p;
            best_gain = gain;
        }
        return best;
    }

    /// By how much part `p` is beyond those limits that `v` counts for, with `times` more of `v` in it.
    std::int64_t excess(std::int64_t v, int p, std::int64_t times) const {
        std::int64_t over = 0;
        for (std::int64_t c = 0; c < graph_.constraints; ++c) {
            const std::int64_t own = graph_.weight[v * graph_.constraints + c], at = p * graph_.constraints + c;
            if (own) over = std::max(over, load_[at] + times * own - limit_[at]);
        }
        return over;
    }

    void add(std::int64_t v, int p, std::int64_t times) {
        for (std::int64_t c = 0; c < graph_.constraints; ++c)
            load_[p * graph_.constraints + c] += times * graph_.weight[v * graph_.constraints + c];
    }

    const WeighedGraph& graph_;
    std::span<const std::int64_t> limit_;  // [part, constraint]
    const int parts_;
    std::vector<std::int32_t> part_of_;  // [vertex]
    std::vector<std::int64_t> load_;     // [part, constraint]
};

void check(const WeighedGraph& graph, std::span<const std::int32_t> part_of, std::span<const std::int64_t> limit,
           int parts) {
    const std::size_t n = graph.allowed.size();
    if (parts < 1 || parts > mask_devices) fail("parts must lie in 1..", mask_devices, ", got ", parts);
    if (graph.first.size() != n + 1 || part_of.size() != n || graph.weight.size() != n * graph.constraints)
        fail("first, part_of and weight do not fit ", n, " vertices");
    if (limit.size() != static_cast<std::size_t>(parts) * graph.constraints)
        fail("limit needs ", parts, " rows of ", graph.constraints, " entries");
    const auto edges = static_cast<std::int64_t>(graph.neighbour.size());
    if (graph.edge_weight.size() != graph.neighbour.size() || graph.first.front() != 0 || graph.first.back() != edges)
        fail("first, neighbour and edge_weight do not fit each other");
    for (std::size_t v = 0; v < n; ++v) {
        if (graph.first[v] > graph.first[v + 1]) fail("first falls at vertex ", v);
        if (part_of[v] < 0 || part_of[v] >= parts) fail("vertex ", v, " is in part ", part_of[v], " of ", parts);
    }
    for (const std::int64_t u : graph.neighbour)
        if (u < 0 || u >= static_cast<std::int64_t>(n)) fail("no vertex ", u, " of ", n);
}

}  // namespace

std::vector<std::int32_t> refine_parts(const WeighedGraph& graph, std::span<const std::int32_t> part_of,
                                       std::span<const std::int64_t> limit, int parts, int passes) {
    check(graph, part_of, limit, parts);
    Refinement refinement(graph, part_of, limit, parts);
    for (int i = 0; i < passes && refinement.pass(); ++i) {}
    return refinement.take();
}

}  // namespace stead
