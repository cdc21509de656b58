#include "stages/ideals.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <numeric>

#include "base/watch.h"
#include "stages/frontier.h"
#include "stages/ideal_table.h"
#include "stages/ideal_walk.h"
#include "stages/remaining_work.h"
#include "stages/retrace.h"

namespace stead {
namespace {

using Work = WorkWindows::Work;

Work work_of(const Terms& terms, const NodeSet& set) {
    Work sum{};
    for (std::int32_t v = 0; v < terms.stages.nodes; ++v)
        if (set.has(v)) terms.windows.add(sum, v);
    return sum;
}

/// Goes on from one ideal after another, on one thread.
template <class Costs>
class Expander {
public:
    Expander(const Terms& terms, IdealTable<Costs>& table, Watch& watch)
        : terms_(terms), table_(table), watch_(watch), pace_(watch), frontier_(terms),
          stage_(terms.stages, terms.prices),
          walk_(terms.stages.predecessors, terms.stages.successors, terms.stages.nodes), set_(terms.stages.nodes),
          out_(terms.stages.nodes + 1) {}

    /// Follows all chains that end with an ideal of `size` nodes; false when that takes `max_pairs`.
    bool expand(const typename IdealTable<Costs>::Entry& ideal, std::int32_t size, std::int64_t max_pairs) {
        set_.assign(ideal.words, ideal.hash());
        done_ = work_of(terms_, set_);
        size_ = size;
        pairs_ = 0;
        max_pairs_ = max_pairs;
        pace_.count(terms_.stages.nodes);
        frontier_.start(ideal.costs, done_, waiting());
        if (frontier_.wanted() == 0) return true;
        for (std::int32_t v = 0; v < terms_.stages.nodes; ++v) stage_.set_below(v, set_.has(v));
        stage_.cut(terms_.cutoff);
        out_[0] = {};
        walk_.start([&](std::int32_t v) { return !set_.has(v); });
        walk_.run(*this);
        return pairs_ < max_pairs_;
    }

    std::int64_t pairs() const { return pairs_; }

    bool enter(std::int32_t v) {
        ++pairs_;
        pace_.count(1);
        if (!stage_.push(v, frontier_.wanted())) return false;
        set_.flip(v);
        terms_.windows.add(done_, v);
        out_[stage_.size()] = out_[stage_.size() - 1];
        const auto arrivals = frontier_.arrivals(stage_, done_);
        if (!arrivals.empty() && !table_.add(set_, size_ + stage_.size(), arrivals)) watch_.stop(Stop::bytes);
        return true;
    }

    void leave(std::int32_t v) {
        stage_.pop();
        set_.flip(v);
        terms_.windows.subtract(done_, v);
    }

    /// With v all that comes after it stays out: is there work enough left for a useful ideal?
    bool enough(std::int32_t v) {
        Work& out = out_[stage_.size()];
        const Work& from = terms_.windows.work_from(v);
        for (int m = 0; m < terms_.windows.measures(); ++m) {
            out[m] = std::max(out[m], from[m]);
            if (terms_.windows.total()[m] - out[m] < frontier_.needed()[m]) return true;
        }
        return false;
    }

    bool stopped() const { return pairs_ >= max_pairs_ || watch_.stopped(); }

private:
    /// Tensors that were made and not yet received by all their readers.
    std::span<const std::int32_t> waiting() {
        waiting_.clear();
        if (!terms_.windows.receiving_adds_up()) return waiting_;
        for (std::int32_t v = 0; v < terms_.stages.nodes; ++v) {
            if (!set_.has(v)) continue;
            for (const std::int32_t t : terms_.stages.outputs[v])
                if (!std::ranges::all_of(terms_.stages.readers[t], [&](std::int32_t u) { return set_.has(u); }))
                    waiting_.push_back(t);
        }
        return waiting_;
    }

    const Terms& terms_;
    IdealTable<Costs>& table_;
    Watch& watch_;
    Pace pace_;
    Frontier<Costs> frontier_;
    GrowingStage stage_;
    IdealWalk walk_;
    NodeSet set_;            // the ideal and the stage
    Work done_{};            // by the set
    std::vector<Work> out_;  // [size of the stage]; at least so much work stays out
    std::vector<std::int32_t> waiting_;
    std::int32_t size_ = 0;
    std::int64_t pairs_ = 0, max_pairs_ = 0;
};

/// Walks down from all nodes to find the stages of a chain again.
template <class Costs>
class Retracer {
public:
    Retracer(const Terms& terms, const IdealTable<Costs>& table, const Arrival& chain, Watch& watch)
        : table_(table), pace_(watch), retrace_(terms, chain), stage_(terms.stages, terms.prices),
          walk_(terms.stages.successors, terms.stages.predecessors, terms.stages.nodes), set_(terms.stages.nodes) {
        for (std::int32_t v = 0; v < terms.stages.nodes; ++v) set_.flip(v);
    }

    StageSplit split() {
        while (!retrace_.complete()) {
            found_ = false;
            stage_.cut(retrace_.chain().cost.total() + 1);
            walk_.start([&](std::int32_t v) { return set_.has(v); });
            walk_.run(*this);
            while (stage_.size() > 0) stage_.pop();
        }
        return retrace_.split();
    }

    bool enter(std::int32_t v) {
        pace_.count(1);
        if (!stage_.push(v, all_kinds)) return false;
        set_.flip(v);
        const Costs* const before = table_.find(set_);
        found_ = before != nullptr && retrace_.take(stage_, before);
        return true;
    }
    void leave(std::int32_t v) {
        stage_.pop();
        set_.flip(v);
    }
    bool enough(std::int32_t) const { return false; }
    bool stopped() const { return found_; }

private:
    const IdealTable<Costs>& table_;
    Pace pace_;
    Retrace retrace_;
    GrowingStage stage_;
    IdealWalk walk_;
    NodeSet set_;  // what is left without the stage
    bool found_ = false;
};

template <class Costs>
class IdealsSearch {
public:
    using Entry = typename IdealTable<Costs>::Entry;

    IdealsSearch(Terms& terms, const IdealsLimits& limits, const Workers& workers)
        : stages_(terms.stages), limits_(limits), workers_(workers), terms_(terms),
          table_(stages_.nodes, terms.counts.states(), limits.max_bytes, workers.threads != 1),
          watch_(limits.seconds, workers), everything_(stages_.nodes) {
        for (std::int32_t v = 0; v < stages_.nodes; ++v) everything_.flip(v);
    }

    IdealsRun run() {
        const Ticks least = terms_.least_ticks();
        terms_.cut(std::min(limits_.cutoff, stages_.horizon + 1));
        const Arrival nothing_done{};
        if (!table_.add(NodeSet(stages_.nodes), 0, std::span(&nothing_done, 1))) watch_.stop(Stop::bytes);
        adopt_best();
        Ticks open = never;
        for (std::int32_t size = 0; size < stages_.nodes && open == never; ++size) open = expand_layer(size);
        return report(watch_.stopped() ? std::max(least, open) : never);
    }

private:
    /// Expands all ideals of one size, in batches; `never`, or a bound on what is left when it has to stop.
    Ticks expand_layer(std::int32_t size) {
        const std::vector<Entry> layer = table_.of_size(size);
        for (std::size_t first = 0; first < layer.size();) {
            const std::size_t count = std::min(batch_size(), layer.size() - first);
            const std::span<const Entry> batch(layer.data() + first, count);
            if (!expand_batch(batch, size)) return open_ticks(std::span(layer).subspan(first), size);
            adopt_best();
            first += count;
        }
        return never;
    }

    /// As many ideals as a quarter of the pairs that are left will probably do for, whatever the number of threads.
    std::size_t batch_size() const {
        const std::int64_t left = limits_.max_pairs - pairs_, each = 1 + pairs_ / std::max<std::int64_t>(1, expanded_);
        return static_cast<std::size_t>(std::clamp<std::int64_t>(left / each / 4, 1, 4096));
    }

    bool expand_batch(std::span<const Entry> batch, std::int32_t size) {
        watch_.poll();
        std::vector<std::int64_t> rows(batch.size());
        std::iota(rows.begin(), rows.end(), 0);
        const std::int64_t max_pairs = limits_.max_pairs - pairs_;
        std::atomic<std::int64_t> pairs = 0;
        std::atomic<std::size_t> next = 0;
        std::atomic<bool> complete = true;
        run_rows(rows, workers_, [&]() -> RowTask {
            Expander<Costs>& expander = expander_of(next++);
            return [&](std::int64_t row) {
                if (watch_.stopped()) return;
                if (!expander.expand(batch[row], size, max_pairs)) complete = false;
                pairs += expander.pairs();
            };
        });
        pairs_ += pairs;
        expanded_ += static_cast<std::int64_t>(batch.size());
        if (!watch_.stopped() && (!complete || pairs_ >= limits_.max_pairs)) watch_.stop(Stop::pairs);
        return !watch_.stopped();
    }

    /// Threads of different batches share their memory.
    Expander<Costs>& expander_of(std::size_t thread) {
        const std::lock_guard lock(mutex_);
        while (expanders_.size() <= thread)
            expanders_.push_back(std::make_unique<Expander<Costs>>(terms_, table_, watch_));
        return *expanders_[thread];
    }

    /// From now on only what is better than the best split counts.
    void adopt_best() {
        const Costs* const costs = table_.find(everything_);
        if (costs == nullptr) return;
        Arrival best{0, {terms_.cutoff, 0}};
        for (std::int64_t state = 0; state < terms_.counts.states(); ++state)
            costs[state].for_each([&](const Cost& cost) {
                if (cost.total() < best.cost.total()) best = {state, cost};
            });
        if (best.cost.total() >= terms_.cutoff) return;
        best_ = Retracer<Costs>(terms_, table_, best, watch_).split();
        terms_.cut(best.cost.total());
    }

    /// A bound for all chains that go on from `rest` or from a larger ideal: every other one has been followed to them.
    Ticks open_ticks(std::span<const Entry> rest, std::int32_t size) const {
        Ticks least = terms_.cutoff;
        NodeSet set(stages_.nodes);
        const auto look_at = [&](const Entry& entry) {
            set.assign(entry.words, entry.hash());
            const Work done = work_of(terms_, set);
            for (std::int64_t state = 0; state < terms_.counts.states(); ++state)
                entry.costs[state].for_each([&](const Cost& cost) {
                    if (cost.total() < least)
                        least = std::min(least, std::max(cost.total(), terms_.windows.least_ticks(state, done)));
                });
        };
        std::ranges::for_each(rest, look_at);
        for (std::int32_t larger = size + 1; larger < stages_.nodes; ++larger)
            std::ranges::for_each(table_.of_size(larger), look_at);
        return least;
    }

    /// `bound` holds for what was not looked at.
    IdealsRun report(Ticks bound) {
        const bool found = best_.ticks >= 0;
        return {.stop = watch_.reason(),
                .bound = std::min(bound, found ? best_.ticks : limits_.cutoff),
                .split = std::move(best_),
                .ideals = table_.count(),
                .pairs = pairs_,
                .bytes = table_.bytes()};
    }

    const Stages& stages_;
    const IdealsLimits& limits_;
    const Workers& workers_;
    Terms& terms_;
    IdealTable<Costs> table_;
    Watch watch_;
    NodeSet everything_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Expander<Costs>>> expanders_;
    StageSplit best_;
    std::int64_t pairs_ = 0, expanded_ = 0;
};

template <class Costs>
IdealsRun search(Terms& terms, const IdealsLimits& limits, const Workers& workers) {
    const Ticks least = terms.least_ticks();
    if (limits.cutoff <= least) return {.bound = limits.cutoff};
    constexpr std::int64_t state_bytes = 2 * sizeof(Costs) + sizeof(Work) + sizeof(Kinds);
    if (terms.counts.states() > limits.max_bytes / state_bytes) return {.stop = Stop::bytes, .bound = least};
    return IdealsSearch<Costs>(terms, limits, workers).run();
}

}  // namespace

IdealsRun find_ideals(const Stages& stages, const StagePrices& prices, const IdealsLimits& limits,
                      const Workers& workers) {
    Terms terms(stages, prices);
    return prices.load == LoadKind::fwbw ? search<ParetoCosts>(terms, limits, workers)
                                            : search<LeastCost>(terms, limits, workers);
}

}  // namespace stead
