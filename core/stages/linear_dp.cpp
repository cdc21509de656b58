#include "stages/linear_dp.h"

#include <algorithm>
#include <vector>

#include "base/fail.h"
#include "base/watch.h"
#include "stages/frontier.h"
#include "stages/remaining_work.h"
#include "stages/retrace.h"

namespace stead {
namespace {

using Work = WorkWindows::Work;

constexpr std::int64_t max_table_bytes = std::int64_t{1} << 32;

void check_order(const Stages& stages, std::span<const std::int32_t> order) {
    if (order.size() != static_cast<std::size_t>(stages.nodes))
        fail("order needs ", stages.nodes, " nodes, got ", order.size());
    std::vector<bool> seen(stages.nodes, false);
    for (std::size_t i = 0; i < order.size(); ++i) {
        const std::int32_t v = order[i];
        if (v < 0 || v >= stages.nodes)
            fail("order: entry ", i, " is node ", v, ", but nodes are 0..", stages.nodes - 1);
        if (seen[v]) fail("order: entry ", i, " repeats node ", v);
        for (const std::int32_t before : stages.predecessors[v])
            if (!seen[before]) fail("order: entry ", i, " is node ", v, ", but node ", before, " must come before it");
        seen[v] = true;
    }
}

template <class Costs>
class LinearSearch {
public:
    LinearSearch(Terms& terms, std::span<const std::int32_t> order, Watch& watch)
        : terms_(terms), order_(order), watch_(watch), pace_(watch), states_(terms.counts.states()), frontier_(terms),
          stage_(terms.stages, terms.prices), position_(order.size()) {
        for (std::size_t i = 0; i < order.size(); ++i) position_[order[i]] = i;
    }

    /// The best split below `cutoff`, if there is one.
    StageSplit run(Ticks cutoff) {
        terms_.cut(cutoff);
        stage_.cut(cutoff);
        table_.assign((order_.size() + 1) * states_, Costs());
        table_[0].add({});
        done_ = {};
        waiting_.clear();
        for (std::size_t i = 0; i < order_.size() && !watch_.stopped(); ++i) {
            expand(i);
            pass(i);
        }
        for (std::size_t i = 0; i < order_.size(); ++i) stage_.set_below(order_[i], false);
        return watch_.stopped() ? StageSplit() : best();
    }

private:
    const Costs* row(std::size_t i) const { return &table_[i * states_]; }

    /// Follows all chains that end before position i.
    void expand(std::size_t i) {
        frontier_.start(row(i), done_, waiting_);
        if (frontier_.wanted() == 0) return;
        Work done = done_;
        std::size_t end = i;
        while (end < order_.size() && stage_.push(order_[end], frontier_.wanted())) {
            terms_.windows.add(done, order_[end++]);
            for (const Arrival& arrival : frontier_.arrivals(stage_, done))
                table_[end * states_ + arrival.state].add(arrival.cost);
        }
        pace_.count(static_cast<std::int64_t>(end - i));
        while (stage_.size() > 0) stage_.pop();
    }

    /// Leaves position i behind.
    void pass(std::size_t i) {
        const std::int32_t v = order_[i];
        stage_.set_below(v, true);
        terms_.windows.add(done_, v);
        if (!terms_.windows.receiving_adds_up()) return;
        const auto is_waiting = [&](std::int32_t t) {
            return std::ranges::any_of(terms_.stages.readers[t], [&](std::int32_t u) { return position_[u] > i; });
        };
        std::erase_if(waiting_, [&](std::int32_t t) { return !is_waiting(t); });
        std::ranges::copy_if(terms_.stages.outputs[v], std::back_inserter(waiting_), is_waiting);
    }

    StageSplit best() {
        Arrival best{0, {terms_.cutoff, 0}};
        for (std::int64_t state = 0; state < states_; ++state)
            row(order_.size())[state].for_each([&](const Cost& cost) {
                if (cost.total() < best.cost.total()) best = {state, cost};
            });
        return best.cost.total() < terms_.cutoff ? retrace(best) : StageSplit();
    }

    StageSplit retrace(const Arrival& chain) {
        Retrace retrace(terms_, chain);
        for (std::size_t end = order_.size(); end > 0;) {
            std::size_t begin = end;
            do stage_.push(order_[--begin], all_kinds);
            while (!retrace.take(stage_, row(begin)));
            while (stage_.size() > 0) stage_.pop();
            end = begin;
        }
        return retrace.split();
    }

    Terms& terms_;
    std::span<const std::int32_t> order_;
    Watch& watch_;
    Pace pace_;
    std::int64_t states_;
    Frontier<Costs> frontier_;
    GrowingStage stage_;
    std::vector<std::size_t> position_;  // [node]
    std::vector<Costs> table_;           // [position, state]
    Work done_{};
    std::vector<std::int32_t> waiting_;
};

template <class Costs>
StageSplit search(Terms& terms, std::span<const std::int32_t> order, const LinearLimits& limits,
                  const Workers& workers) {
    const Ticks least = terms.least_ticks(), most = std::min(limits.cutoff, terms.stages.horizon + 1);
    if (most <= least) return {};
    const std::int64_t width = (terms.stages.nodes + 1) * std::int64_t{sizeof(Costs)};
    if (terms.counts.states() > max_table_bytes / width)
        fail("a table for ", terms.stages.nodes, " nodes and every number of used devices is too large");
    Watch watch(limits.seconds, workers);
    LinearSearch<Costs> linear(terms, order, watch);
    for (Ticks cutoff = least + least / 16 + 1;; cutoff = std::max(cutoff + cutoff / 2 + 1, most >> 8)) {
        const StageSplit split = linear.run(std::min(cutoff, most));
        if (split.ticks >= 0 || cutoff >= most || watch.stopped()) return split;
    }
}

}  // namespace

StageSplit find_linear_split(const Stages& stages, const StagePrices& prices, std::span<const std::int32_t> order,
                             const LinearLimits& limits, const Workers& workers) {
    check_order(stages, order);
    Terms terms(stages, prices);
    return prices.load == LoadKind::fwbw ? search<ParetoCosts>(terms, order, limits, workers)
                                            : search<LeastCost>(terms, order, limits, workers);
}

}  // namespace stead
