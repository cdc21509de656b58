// Parts of a weighted graph under several limits at once, improved vertex by vertex.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace stead {

/// Borrowed from the caller: vertices with `constraints` weights each, every edge from both of its ends.
struct WeighedGraph {
    std::int64_t constraints = 0;
    std::span<const std::int64_t> first;       // [vertex + 1]
    std::span<const std::int64_t> neighbour;
    std::span<const std::int64_t> edge_weight;  // as neighbour
    std::span<const std::int64_t> weight;       // [vertex, constraint]
    std::span<const std::uint64_t> allowed;     // [vertex]; parts it may be in, as bits

    std::int64_t vertices() const { return static_cast<std::int64_t>(allowed.size()); }
};

/// Better parts: less weight of edges between parts, no part beyond `limit` [part, constraint] where that is possible.
/// Greedy passes over the vertices in order of their index, as in the refinement of multi-constraint METIS (Karypis and
/// Kumar 1998): a vertex of an overfull part goes where it costs least, every other one only where it gains.
std::vector<std::int32_t> refine_parts(const WeighedGraph& graph, std::span<const std::int32_t> part_of,
                                       std::span<const std::int64_t> limit, int parts, int passes);

}  // namespace stead
