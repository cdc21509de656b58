// A stage that grows and shrinks like a stack of nodes, and what it costs on devices of each kind. A step touches only
// the tensors of its node, so that walking over many stages is cheap.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/load_kind.h"
#include "stages/stages.h"

namespace stead {

/// Ticks of the busiest device. All is forward unless phases are counted apart.
struct Cost {
    Ticks forward = 0, backward = 0;

    Ticks total() const { return forward + backward; }
    bool within(const Cost& other) const { return forward <= other.forward && backward <= other.backward; }
    bool operator==(const Cost&) const = default;
};

inline Cost worst(const Cost& a, const Cost& b) {
    return {std::max(a.forward, b.forward), std::max(a.backward, b.backward)};
}

/// Calls use(j) for each kind j of a set, increasing.
template <class Use>
void for_each_kind(Kinds kinds, Use use) {
    for (; kinds != 0; kinds &= kinds - 1) use(std::countr_zero(kinds));
}

/// How stages are priced.
struct StagePrices {
    LoadKind load = LoadKind::sum;
    int replicas = 1;                         // at most so many devices of one kind share a stage
    std::vector<double> sync_ticks_per_byte;  // [kind]; price of keeping the weights of replicas equal
};

class GrowingStage {
public:
    GrowingStage(const Stages& stages, const StagePrices& prices);

    /// From now on only kinds that can stay below `cutoff` are of interest.
    void cut(Ticks cutoff);

    /// While the stage is empty: whether v comes before it and will not join it.
    void set_below(std::int32_t v, bool below) { where_[v] = below ? Where::below : Where::elsewhere; }

    /// Adds v; false, and nothing is changed, when it is too much for each of the `wanted` kinds whatever follows.
    bool push(std::int32_t v, Kinds wanted);
    void pop();

    std::int32_t size() const { return static_cast<std::int32_t>(nodes_.size()); }
    std::int32_t node(std::int32_t i) const { return nodes_[i]; }

    /// Kinds that may run the stage, or one that contains it.
    Kinds kinds() const { return rows_[depth()].kinds; }

    /// At most so many devices of kind j share a stage.
    int most_replicas(int j) const { return most_replicas_[j]; }

    /// Cost of each of `devices` that share the stage; j must be one of kinds().
    Cost cost(int j, int devices) const;

private:
    enum class Where : std::uint8_t { elsewhere, below, inside };

    /// What is asked at every step, side by side.
    struct Tensor {
        std::int32_t source, readers;
        std::int32_t inside;  // readers in the stage
        std::int32_t phase;
    };
    /// Sums for tensors of one tariff and phase.
    struct Transfers {
        Ticks in = 0, out = 0;
        Ticks in_from_below = 0;  // never falls while the stage grows
    };
    struct Row {
        Kinds kinds;
        std::int64_t bytes;
    };

    std::size_t depth() const { return nodes_.size(); }

    Ticks compute_at(int phase, int j) const { return compute_[(depth() * stages_.kinds + j) * phases_ + phase]; }
    const Transfers& transfers_at(int phase, int j) const {
        return transfers_[(depth() * phases_ + phase) * stages_.tariffs + stages_.tariff[j]];
    }

    void add_compute(std::int32_t v, Row& row);
    void add_bytes(std::int32_t v, Row& row);
    bool add_transfers(std::int32_t v);
    void drop_overloaded(Row& row) const;
    bool exceeds_limit(int j, Ticks work) const;
    Ticks load(int j, int phase) const;
    Ticks sync(int j, int devices) const;

    const Stages& stages_;
    const StagePrices& prices_;
    int phases_;
    bool transfers_add_up_;  // to compute
    bool memory_may_bind_;
    std::vector<int> most_replicas_;    // [kind]
    std::vector<Ticks> limit_;          // [kind]; a stage with a larger load never stays below the cutoff
    std::vector<Where> where_;          // [node]
    std::vector<Tensor> tensors_;       // [tensor]
    std::vector<std::int32_t> users_;   // [weight]; users in the stage
    std::vector<std::int32_t> nodes_;   // the stage
    std::vector<Row> rows_;             // [depth]
    std::vector<Ticks> compute_;        // [depth, kind, phase]
    std::vector<Transfers> transfers_;  // [depth, phase, tariff]
};

}  // namespace stead
