// What walks over a problem look up, whatever rule they follow: ranks, scales of time, what lies around each operator.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "base/problem.h"
#include "build/list_tables.h"
#include "build/ranks.h"

namespace stead {

/// Logarithm to base 2 of a positive number, by straight lines between the powers of two: it rises strictly, and is the
/// same on every machine, which the standard library does not promise.
inline double lined_log2(double x) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const auto exponent = static_cast<double>(static_cast<std::int64_t>(bits >> 52) - 1023);
    return exponent + static_cast<double>(bits & 0xfffffffffffffu) * 0x1p-52;
}

/// How many times over: 0 for nothing, 1 for as much as 1, then slower and slower.
inline double folds(double x) { return lined_log2(1.0 + std::max(0.0, x)); }

/// What a rule may weigh its features by: numbers of the whole problem, then numbers of the unit that is placed.
inline constexpr int graph_contexts = 6;
inline constexpr int unit_contexts = 4;

/// Derived once for a problem and a grouping into units; read by any number of walks at once.
struct WalkTables {
    /// `forward_of` [operator] is the forward operator that each belongs to, itself for forward ones.
    WalkTables(const Problem& problem, std::span<const std::int32_t> unit_of, std::span<const std::int32_t> forward_of);

    const Problem& problem() const { return list.problem; }
    const std::vector<double>& rank_by(Average average) const { return rank[static_cast<std::size_t>(average)]; }
    Ticks unit_length(std::int32_t unit, int d) const {
        return unit_ticks[std::int64_t{unit} * list.problem.devices + d];
    }

    ListTables list;
    std::vector<std::int32_t> forward_of;          // [operator]
    std::array<std::vector<double>, 3> rank;       // [average][operator]
    std::vector<double> bare_rank;                 // [operator]; transfers count nothing
    std::vector<double> optimistic;                // [operator, device]
    std::vector<double> move;                      // [tensor]; mean ticks of a transfer
    std::vector<double> length;                    // [operator]; mean ticks
    std::vector<double> incoming, outgoing;        // [operator]; transfers of all it reads, of all it writes
    std::vector<std::int32_t> readers;             // [operator]; of all it writes
    std::vector<std::int32_t> favourite;           // [operator]; the reader of the highest rank, -1 without one
    std::vector<Ticks> unit_ticks;                 // [unit, device]; only where the unit may run
    std::vector<double> unit_mean;                 // [unit]
    double typical = 1.0;                          // mean ticks of an operator that takes any
    double total = 1.0;                            // of all operators
    double horizon = 1.0;                          // the longest path or an even share of all work, at least costs
    double longest_rank = 1.0;
    std::array<double, graph_contexts> context{};  // devices, parallelism, transfers, size, unlike speeds, memory

private:
    void measure_operators();
    void measure_horizon();
    void look_around();
    void describe();
};

}  // namespace stead
