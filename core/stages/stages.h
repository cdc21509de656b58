// The reduced instance that exact solvers of pipelined throughput read: nodes that are placed as one, the tensors
// between them, and kinds of devices that cannot be told apart.
//
// A stage is a set of nodes on one device (or several that share its samples). Splits are chains of ideals, sets closed
// under predecessors: each stage is the difference of two neighbours in the chain. Letters: v node, t tensor, j kind.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/problem.h"

namespace stead {

/// Sets of kinds are 64-bit masks.
using Kinds = std::uint64_t;
inline constexpr int max_kinds = 64;
inline constexpr Kinds all_kinds = ~Kinds{0};

/// What a caller hands in. Nothing is owned; matrices are row by row.
struct StagesArrays {
    std::int64_t nodes = 0;
    std::int64_t kinds = 0;
    std::span<const Ticks> ticks;                  // [node, kind, 2]; forward, backward; both -1 where it cannot run
    std::span<const std::int32_t> order;           // [edge, 2]; first before second
    std::span<const std::int32_t> tensor_source;   // [tensor]
    std::span<const std::uint8_t> tensor_late;     // [tensor]; 1 = counts as backward
    std::span<const std::int64_t> reader_first;    // [tensor + 1]
    std::span<const std::int32_t> readers;         // nodes other than the source
    std::span<const Ticks> receive_ticks;          // [tensor, kind]
    std::span<const Ticks> send_ticks;             // [tensor, kind]
    std::span<const std::int64_t> weight_bytes;    // [weight]
    std::span<const std::int64_t> user_first;      // [weight + 1]
    std::span<const std::int32_t> users;           // nodes
    std::span<const std::int32_t> kind_count;      // [kind]
    std::span<const std::int64_t> kind_memory;     // [kind]; bytes of each device
};

/// Lists of items, one after another.
struct Lists {
    std::span<const std::int32_t> operator[](std::int64_t list) const {
        return {items.data() + first[list], static_cast<std::size_t>(first[list + 1] - first[list])};
    }

    std::vector<std::int64_t> first;  // [list + 1]
    std::vector<std::int32_t> items;
};

/// Checked once when built, never changed afterwards; safe to share between threads.
struct Stages {
    explicit Stages(const StagesArrays& given);

    std::int32_t nodes = 0;
    int kinds = 0;

    // Nodes; the index is a topological rank.
    std::vector<Ticks> ticks;                // [node, kind, 2]; 0 where it cannot run
    std::vector<Kinds> runs_on;              // [node]; kinds with devices that can run it
    Lists successors, predecessors;          // [node]
    Lists outputs, inputs;                   // [node]; tensors with a price that it makes, and that it reads
    std::vector<std::int64_t> own_bytes;     // [node]; weights that no other node uses
    Lists shared_weights;                    // [node]; weights that others use too
    std::vector<std::int64_t> weight_bytes;  // [weight]

    // Tensors. Kinds with the same prices share a tariff, so that most instances have one; free kinds have none.
    std::vector<std::int32_t> source;         // [tensor]
    std::vector<std::uint8_t> late;           // [tensor]
    Lists readers;                            // [tensor]
    std::vector<Ticks> receive_ticks;         // [tensor, kind]
    int tariffs = 0;
    std::vector<int> tariff;                  // [kind]; -1 = transfers are free
    std::vector<Ticks> tariff_receive_ticks;  // [tensor, tariff]
    std::vector<Ticks> tariff_send_ticks;     // [tensor, tariff]

    std::vector<std::int32_t> kind_count;   // [kind]; devices
    std::vector<std::int64_t> kind_memory;  // [kind]

    std::int64_t tensors() const { return static_cast<std::int64_t>(source.size()); }
    Ticks forward_ticks(std::int64_t v, int j) const { return ticks[2 * (v * kinds + j)]; }
    Ticks backward_ticks(std::int64_t v, int j) const { return ticks[2 * (v * kinds + j) + 1]; }
    Ticks total_ticks(std::int64_t v, int j) const { return forward_ticks(v, j) + backward_ticks(v, j); }

    Ticks horizon = 0;             // no stage on one device takes longer, however loads are counted
    std::int64_t total_bytes = 0;  // of all weights

private:
    void take_nodes(const StagesArrays& given);
    void take_tensors(const StagesArrays& given);
    void take_weights(const StagesArrays& given);
    void share_tariffs(const StagesArrays& given);
};

/// Stages in the order of the pipeline.
struct StageSplit {
    Ticks ticks = -1;  // of the busiest device; -1 when there is no split
    std::vector<std::int32_t> stage_of_node;
    std::vector<std::int32_t> kind_of_stage, replicas_of_stage;
};

}  // namespace stead
