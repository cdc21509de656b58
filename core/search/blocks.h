// Units, and blocks of units that exchange much: what a search moves at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/problem.h"

namespace stead {

/// A partition of the operators, in a form that gives members and labels quickly.
struct Partition {
    Partition() = default;
    Partition(std::vector<std::int32_t> labels, std::int32_t count);

    std::int32_t count() const { return static_cast<std::int32_t>(first.size()) - 1; }
    std::span<const std::int32_t> members(std::int32_t part) const {
        return {member.data() + first[part], static_cast<std::size_t>(first[part + 1] - first[part])};
    }

    std::vector<std::int32_t> label;   // [operator]
    std::vector<std::int32_t> first;   // [part + 1]
    std::vector<std::int32_t> member;  // operators of each part, increasing
};

/// Ever coarser partitions: in each step pairs of parts are joined along the edges that carry most for the work they
/// join (heavy-edge matching, Karypis and Kumar 1998). The first level are the units themselves.
std::vector<Partition> heavy_edge_levels(const Problem& problem, std::span<const std::int32_t> unit_of);

}  // namespace stead
