// Finds the stages of a chain again, the last one first: dynamic programs store what chains cost, not how they went.
#pragma once

#include <algorithm>
#include <cstdint>

#include "stages/frontier.h"
#include "stages/growing_stage.h"
#include "stages/stages.h"

namespace stead {

class Retrace {
public:
    /// A chain that ends with all nodes.
    Retrace(const Terms& terms, const Arrival& chain) : counts_(terms.counts), chain_(chain) {
        split_.ticks = chain.cost.total();
        split_.stage_of_node.assign(terms.stages.nodes, 0);
    }

    /// What is left of the chain.
    const Arrival& chain() const { return chain_; }
    bool complete() const { return chain_.state == 0; }

    /// Takes `stage` off the end of the chain if one of those that cost `before`, [state], can have gone on with it.
    template <class Costs>
    bool take(const GrowingStage& stage, const Costs* before) {
        bool taken = false;
        for_each_kind(stage.kinds(), [&](int j) {
            const int most = taken ? 0 : std::min<int>(stage.most_replicas(j), counts_.used(chain_.state, j));
            for (int d = 1; d <= most && !taken; ++d) {
                if (!stage.cost(j, d).within(chain_.cost)) continue;
                const std::int64_t state = chain_.state - d * counts_.step(j);
                before[state].for_each([&](const Cost& cost) {
                    if (taken || !cost.within(chain_.cost)) return;
                    taken = true;
                    split_.kind_of_stage.push_back(j);
                    split_.replicas_of_stage.push_back(d);
                    chain_ = {state, cost};
                });
            }
        });
        if (!taken) return false;
        const auto number = static_cast<std::int32_t>(split_.kind_of_stage.size());
        for (std::int32_t i = 0; i < stage.size(); ++i) split_.stage_of_node[stage.node(i)] = number;
        return true;
    }

    /// The stages in the order of the pipeline, once the chain is complete.
    StageSplit split() const {
        StageSplit split = split_;
        const auto stages = static_cast<std::int32_t>(split.kind_of_stage.size());
        for (std::int32_t& number : split.stage_of_node) number = stages - number;
        std::ranges::reverse(split.kind_of_stage);
        std::ranges::reverse(split.replicas_of_stage);
        return split;
    }

private:
    const DeviceCounts& counts_;
    Arrival chain_;
    StageSplit split_;  // stages are counted from the end, from 1 on
};

}  // namespace stead
