#include "stages/frontier.h"

#include <algorithm>

namespace stead {
namespace {

using Work = WorkWindows::Work;

constexpr Work endless = [] {
    Work work{};
    work.fill(never);
    return work;
}();

void lower(Work& work, const Work& other) {
    for (std::size_t m = 0; m < work.size(); ++m) work[m] = std::min(work[m], other[m]);
}

template <class Costs>
bool dominates(const Costs& costs, const Cost& cost) {
    bool found = false;
    costs.for_each([&](const Cost& other) { found |= other.within(cost); });
    return found;
}

}  // namespace

std::int64_t ParetoCosts::add(const Cost& cost) {
    const auto at = std::ranges::lower_bound(costs_, cost.forward, {}, &Cost::forward);
    if (at != costs_.end() && at->within(cost)) return 0;
    if (at != costs_.begin() && std::prev(at)->within(cost)) return 0;
    const auto beaten_end = std::find_if(at, costs_.end(), [&](const Cost& other) { return !cost.within(other); });
    const std::size_t before = costs_.capacity();
    if (at == beaten_end) {
        costs_.insert(at, cost);
    } else {
        *at = cost;
        costs_.erase(at + 1, beaten_end);
    }
    return static_cast<std::int64_t>((costs_.capacity() - before) * sizeof(Cost));
}

Terms::Terms(const Stages& stages, const StagePrices& prices)
    : stages(stages), prices(prices), counts(stages, prices.replicas), windows(stages, counts, prices.load) {}

void Terms::cut(Ticks new_cutoff) {
    cutoff = new_cutoff;
    windows.cut(cutoff);
    kinds_left.assign(counts.states(), 0);
    for (std::int64_t state = 0; state < counts.states(); ++state)
        for (int j = 0; j < stages.kinds; ++j)
            if (counts.left(state, j) > 0) kinds_left[state] |= Kinds{1} << j;
}

Ticks Terms::least_ticks() const {
    Ticks least = windows.least_ticks(0, Work{});
    for (std::int32_t v = 0; v < stages.nodes; ++v) {
        Ticks fastest = never;
        for_each_kind(stages.runs_on[v], [&](int j) {
            const Ticks devices = std::min(prices.replicas, stages.kind_count[j]);
            fastest = std::min(fastest, (stages.total_ticks(v, j) + devices - 1) / devices);
        });
        least = std::max(least, fastest);
    }
    return least;
}

template <class Costs>
Frontier<Costs>::Frontier(const Terms& terms) : terms_(terms), with_fewer_(terms.counts.states()) {
    for (int j = 0; j < terms.stages.kinds; ++j)
        for (int d = 1; d <= std::min(terms.prices.replicas, terms.stages.kind_count[j]); ++d)
            steps_.push_back({.kind = j, .devices = d, .needed = {}, .chains = {}});
}

template <class Costs>
void Frontier<Costs>::start(const Costs* chains, const Work& done, std::span<const std::int32_t> waiting) {
    wanted_ = 0;
    needed_ = endless;
    receiving_.clear();
    for (Step& step : steps_) {
        step.needed = endless;
        step.chains.clear();
    }
    const DeviceCounts& counts = terms_.counts;
    for (std::int64_t state = 0; state < counts.states(); ++state) {
        Costs& with_fewer = with_fewer_[state] = {};
        for (int j = 0; j < counts.kinds(); ++j)
            if (counts.used(state, j) > 0)
                with_fewer_[state - counts.step(j)].for_each([&](const Cost& cost) { with_fewer.add(cost); });
        chains[state].for_each([&](const Cost& cost) {
            if (cost.total() >= terms_.cutoff || dominates(with_fewer, cost)) return;
            with_fewer.add(cost);
            if (fits(state, done, waiting)) go_on(state, cost);
        });
    }
    for (Step& step : steps_) {
        if (step.chains.empty()) continue;
        std::ranges::stable_sort(step.chains, {}, &Next::needed);
        wanted_ |= Kinds{1} << step.kind;
        lower(needed_, step.needed);
    }
}

/// Tensors that wait to be received are work, too, for the devices that are left.
template <class Costs>
bool Frontier<Costs>::fits(std::int64_t state, Work done, std::span<const std::int32_t> waiting) {
    const WorkWindows& windows = terms_.windows;
    if (!windows.admits(done, windows.needed(state))) return false;
    const Kinds left = terms_.kinds_left[state];
    auto known = std::ranges::find(receiving_, left, &std::pair<Kinds, Work>::first);
    if (known == receiving_.end()) {
        Work sum{};
        for (const std::int32_t t : waiting) {
            const Work work = windows.receiving(t, left);
            for (int m = 0; m < windows.measures(); ++m) sum[m] += work[m];
        }
        known = receiving_.insert(known, {left, sum});
    }
    for (int m = 0; m < windows.measures(); ++m) done[m] -= known->second[m];
    return windows.admits(done, windows.needed(state));
}

template <class Costs>
void Frontier<Costs>::go_on(std::int64_t state, const Cost& cost) {
    for (Step& step : steps_) {
        if (terms_.counts.left(state, step.kind) < step.devices) continue;
        const std::int64_t next = state + step.devices * terms_.counts.step(step.kind);
        const Work& needed = terms_.windows.needed(next);
        step.chains.push_back({{next, cost}, needed[0]});
        lower(step.needed, needed);
    }
}

template <class Costs>
std::span<const Arrival> Frontier<Costs>::arrivals(const GrowingStage& stage, const Work& done) {
    arrivals_.clear();
    const WorkWindows& windows = terms_.windows;
    for (const Step& step : steps_) {
        if ((stage.kinds() >> step.kind & 1) == 0 || !windows.admits(done, step.needed)) continue;
        const Cost cost = stage.cost(step.kind, step.devices);
        if (cost.total() >= terms_.cutoff) continue;
        for (const Next& chain : step.chains) {
            if (done[0] < chain.needed) break;
            const auto& [state, before] = chain.arrival;
            const Cost both = worst(before, cost);
            if (both.total() < terms_.cutoff && windows.admits(done, windows.needed(state)))
                arrivals_.push_back({state, both});
        }
    }
    return arrivals_;
}

template class Frontier<LeastCost>;
template class Frontier<ParetoCosts>;

}  // namespace stead
