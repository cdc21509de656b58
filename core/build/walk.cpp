#include "build/walk.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <queue>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "base/fail.h"
#include "base/placement.h"
#include "base/rng.h"
#include "base/watch.h"
#include "sim/memory.h"
#include "sim/policies/program_order.h"

namespace stead {

namespace {

struct OutOfTime {};

/// The weights of a rule for one problem: contexts of the problem are the same for all its units.
class Rule {
public:
    Rule(const WalkTables& tables, std::span<const double> weights)
        : weights_(weights), device_(weights.begin(), weights.begin() + device_features),
          queue_(queue_row(0), queue_row(0) + queue_features) {
        for (int c = 0; c < graph_contexts; ++c) {
            for (int f = 0; f < device_features; ++f) device_[f] += tables.context[c] * device_row(1 + c)[f];
            for (int f = 0; f < queue_features; ++f) queue_[f] += tables.context[c] * queue_row(1 + c)[f];
        }
        const auto is_zero = [](double weight) { return weight == 0.0; };
        const auto border = weights.begin() + device_rows * device_features;
        chooses_ = !std::all_of(weights.begin(), border, is_zero);
        queues_ = !std::all_of(border, weights.end(), is_zero);
    }

    bool chooses() const { return chooses_; }
    bool queues() const { return queues_; }

    /// Adds what the rule thinks of each open device to `logits`.
    void score(const FeatureTable& features, const std::array<double, unit_contexts>& unit, int devices,
               std::array<double, mask_devices>& logits) const {
        for (int f = 0; f < device_features; ++f) {
            double weight = device_[f];
            for (int c = 0; c < unit_contexts; ++c) weight += unit[c] * device_row(1 + graph_contexts + c)[f];
            for (int d = 0; d < devices; ++d) logits[d] += weight * features[f][d];
        }
    }

    double lift(const std::array<double, queue_features>& features) const {
        return std::inner_product(features.begin(), features.end(), queue_.begin(), 0.0);
    }

private:
    const double* device_row(int row) const { return weights_.data() + row * device_features; }
    const double* queue_row(int row) const {
        return weights_.data() + device_rows * device_features + row * queue_features;
    }

    std::span<const double> weights_;
    std::vector<double> device_, queue_;  // [feature]
    bool chooses_ = false, queues_ = false;
};

/// Scores schedules, one after another.
class Judge {
public:
    explicit Judge(const Problem& problem)
        : problem_(problem), engine_(problem, false), memory_(problem),
          run_(problem.memory_is_ample ? Run() : Run(problem)) {}

    /// Fills ticks and over_bytes of a walk that can run.
    void judge(Walk& walk) {
        const DeviceIndex* const row = walk.devices.data();
        const bool needs_run = memory_.needs_run(row, problem_.memory_is_ample ? MemoryMode::off : MemoryMode::check);
        walk.ticks = engine_.simulate(row, {walk.order, {}}, never, needs_run ? &run_ : nullptr);
        walk.over_bytes = 0;
        for (const Peak& peak : memory_.judge(row, run_, walk.ticks)) walk.over_bytes += peak.over;
        ++walk.simulations;
    }

private:
    const Problem& problem_;
    ProgramOrder engine_;
    Memory memory_;
    Run run_;
};

/// One walk.
class Walker {
public:
    /// `opinion` [unit, device] is empty and `guide` null where there is none.
    Walker(const WalkTables& tables, const Rule& rule, std::span<const double> opinion, const Guide* guide,
           const WalkVariant& variant, std::span<const std::int64_t> limit_bytes, Watch& watch)
        : tables_(tables), problem_(tables.problem()), rule_(rule), opinion_(opinion), guide_(guide),
          variant_(variant), state_(tables, limit_bytes), rng_(variant.seed), watch_(watch), pace_(watch) {}

    Walk build(Judge& judge) {
        if (rule_.queues())
            by_priority();
        else
            for (const std::int32_t v : by_rank(ranks())) step(v);
        Walk walk{state_.timeline.devices(), state_.timeline.order()};
        if (static_cast<std::int32_t>(walk.order.size()) != problem_.operators)
            throw std::logic_error("a walk left operators out");
        if (find_obstacle(problem_, walk.devices.data()).status != Status::ok) return walk;
        judge.judge(walk);
        return variant_.retime ? retimed(std::move(walk), judge) : walk;
    }

private:
    const std::vector<double>& ranks() const {
        return guide_ ? guide_->rank() : tables_.rank_by(variant_.average);
    }

    void by_priority() {
        const std::vector<double>& rank = ranks();
        // Ranks decide between equal priorities, so that weights of zero lead to the very order of ranks.
        using Entry = std::tuple<double, double, std::int32_t>;  // priority, rank, -operator
        std::priority_queue<Entry> ready;
        const auto push = [&](std::int32_t v) {
            const double lift = rule_.lift(describe_ready(state_, v));
            ready.emplace(rank[v] / (5 * tables_.typical) + lift, rank[v], -v);
        };
        std::vector<std::int32_t> need = problem_.inputs;
        for (const std::int32_t v : problem_.sources) push(v);
        while (!ready.empty()) {
            const std::int32_t v = -std::get<2>(ready.top());
            ready.pop();
            step(v);
            for (std::int32_t t = problem_.tensor_first[v]; t < problem_.tensor_first[v + 1]; ++t)
                for (std::int32_t i = problem_.consumer_first[t]; i < problem_.consumer_first[t + 1]; ++i)
                    if (--need[problem_.consumer[i]] == 0) push(problem_.consumer[i]);
        }
    }

    void step(std::int32_t v) {
        pace_.count(problem_.devices);
        if (watch_.stopped()) throw OutOfTime{};
        const std::int32_t unit = tables_.list.unit_of[v];
        if (state_.device_of_unit[unit] < 0) state_.place(unit, v, choose(v, unit));
        state_.run(v, state_.device_of_unit[unit]);
    }

    int choose(std::int32_t v, std::int32_t unit) {
        consider(v, unit);
        const int k = problem_.devices;
        double least = std::numeric_limits<double>::infinity();
        for (int d = 0; d < k; ++d)
            if (choice_.open[d]) least = std::min(least, choice_.value[d]);
        const double scale = local_scale(tables_, v);
        std::array<double, mask_devices> logits;
        for (int d = 0; d < k; ++d) logits[d] = choice_.open[d] ? -folds((choice_.value[d] - least) / scale) : 0.0;
        if (rule_.chooses() && choice_.count > 1) {
            describe_devices(state_, choice_, features_);
            rule_.score(features_, describe_unit(state_, choice_), k, logits);
        }
        if (!opinion_.empty())
            for (int d = 0; d < k; ++d) logits[d] += opinion_[std::int64_t{unit} * k + d];
        if (guide_) logits[guide_->device(v)] += variant_.cling;
        if (variant_.noise > 0)
            for (int d = 0; d < k; ++d) logits[d] += variant_.noise * rng_.exponential();
        return best(logits);
    }

    /// Devices that reach all inputs before those that do not, then those that lack the fewest bytes.
    void consider(std::int32_t v, std::int32_t unit) {
        std::int64_t short_bytes[mask_devices];
        state_.room.look(unit, state_.device_of_unit, short_bytes);
        choice_.v = v;
        choice_.unit = unit;
        choice_.count = 0;
        std::pair<bool, std::int64_t> least{true, std::numeric_limits<std::int64_t>::max()};
        const auto standing = [&](int d) { return std::pair(!choice_.offer[d].possible, short_bytes[d]); };
        for (int d = 0; d < problem_.devices; ++d) {
            choice_.open[d] = tables_.list.allowed[unit] >> d & 1;
            if (!choice_.open[d]) continue;
            const Offer& offer = choice_.offer[d] = state_.timeline.offer(v, d);
            choice_.value[d] = static_cast<double>(offer.finish) +
                               (variant_.bias - 1.0) * static_cast<double>(offer.moved) +
                               variant_.foresight * static_cast<double>(state_.rest(unit, v, d));
            if (guide_) choice_.value[d] += variant_.tail * guide_->behind(v, d);
            least = std::min(least, standing(d));
        }
        for (int d = 0; d < problem_.devices; ++d) {
            choice_.open[d] = choice_.open[d] && standing(d) == least;
            choice_.count += choice_.open[d];
        }
    }

    /// Among equal logits as list scheduling decides: the least value, the first to finish, the one busy longest.
    int best(const std::array<double, mask_devices>& logits) const {
        using Key = std::tuple<double, double, Ticks, Ticks>;
        int chosen = -1;
        Key least;
        for (int d = 0; d < problem_.devices; ++d) {
            if (!choice_.open[d]) continue;
            const Key key{-logits[d], choice_.value[d], choice_.offer[d].finish, -state_.timeline.device_end(d)};
            if (chosen >= 0 && !(key < least)) continue;
            least = key;
            chosen = d;
        }
        return chosen;
    }

    /// The best of three orders at the same devices: as it was walked, by upward ranks at their costs, and by the ranks
    /// of the better of these two, waiting included.
    Walk retimed(Walk walk, Judge& judge) const {
        try_order(walk, placed_ranks(problem_, walk.devices), judge);
        try_order(walk, busy_ranks(problem_, walk.devices, walk.order), judge);
        return walk;
    }

    /// Gives the walk the order of `rank` if that is better.
    void try_order(Walk& walk, const std::vector<double>& rank, Judge& judge) const {
        Timeline timeline(tables_.list, true);
        for (const std::int32_t v : by_rank(rank)) timeline.run(v, walk.devices[v]);
        Walk other{timeline.devices(), timeline.order()};
        other.retimed = true;
        other.simulations = walk.simulations;
        judge.judge(other);
        walk.simulations = other.simulations;
        const auto key = [](const Walk& one) { return std::pair(one.over_bytes, one.ticks); };
        if (key(other) < key(walk)) walk = std::move(other);
    }

    const WalkTables& tables_;
    const Problem& problem_;
    const Rule& rule_;
    const std::span<const double> opinion_;
    const Guide* const guide_;
    const WalkVariant variant_;
    WalkState state_;
    Choice choice_;
    FeatureTable features_{};
    Rng rng_;
    Watch& watch_;
    Pace pace_;
};

constexpr double most_weight = 1e6;

std::int64_t opinions_of_row(const WalkTables& tables) {
    return std::int64_t{tables.list.units()} * tables.problem().devices;
}

void check(const WalkTables& tables, std::span<const double> weights, std::span<const double> opinions,
           std::span<const Guide> guides, std::span<const WalkVariant> variants,
           std::span<const std::int64_t> limit_bytes) {
    if (static_cast<std::int64_t>(limit_bytes.size()) != tables.problem().devices)
        fail("limit_bytes needs ", tables.problem().devices, " entries, one per device, got ", limit_bytes.size());
    for (const std::int64_t bytes : limit_bytes)
        if (bytes < 0) fail("limit_bytes must not be negative, got ", bytes);
    if (weights.size() % rule_weights) fail("a rule has ", rule_weights, " weights, got ", weights.size(), " in all");
    for (const double weight : weights)
        if (!(std::abs(weight) <= most_weight)) fail("weights must lie in -1e6..1e6, got ", weight);
    const std::int64_t width = opinions_of_row(tables);
    const auto held = static_cast<std::int64_t>(opinions.size());
    if (width ? held % width : held) fail("a row of opinions has ", width, " numbers, got ", held, " in all");
    for (const double opinion : opinions)
        if (!(std::abs(opinion) <= most_weight)) fail("opinions must lie in -1e6..1e6, got ", opinion);
    const auto rules = static_cast<std::int64_t>(weights.size()) / rule_weights;
    const std::int64_t rows = width ? held / width : 0;
    for (const WalkVariant& variant : variants) {
        if (variant.rule < 0 || variant.rule >= rules)
            fail("a variant names rule ", variant.rule, ", there are ", rules, " from 0");
        if (variant.opinion != WalkVariant::none && (variant.opinion < 0 || variant.opinion >= rows))
            fail("a variant names row ", variant.opinion, " of opinions, there are ", rows, " from 0");
        const auto known = static_cast<std::int64_t>(guides.size());
        if (variant.guide != WalkVariant::none && (variant.guide < 0 || variant.guide >= known))
            fail("a variant names guide ", variant.guide, ", there are ", known, " from 0");
    }
}

}  // namespace

std::vector<Walk> walks(const WalkTables& tables, std::span<const double> weights, std::span<const double> opinions,
                        std::span<const Guide> guides, std::span<const WalkVariant> variants,
                        std::span<const std::int64_t> limit_bytes, double seconds, const Workers& workers) {
    check(tables, weights, opinions, guides, variants, limit_bytes);
    const std::int64_t width = opinions_of_row(tables);
    Watch watch(seconds, workers);
    std::vector<Rule> rules;
    for (std::size_t begin = 0; begin < weights.size(); begin += rule_weights)
        rules.emplace_back(tables, weights.subspan(begin, rule_weights));
    std::vector<Walk> results(variants.size());
    std::vector<std::int64_t> rows(variants.size());
    std::iota(rows.begin(), rows.end(), 0);
    run_rows(rows, workers, [&]() -> RowTask {
        const auto judge = std::make_shared<Judge>(tables.problem());
        return [&, judge](std::int64_t row) {
            const WalkVariant& variant = variants[row];
            std::span<const double> opinion;
            if (variant.opinion != WalkVariant::none) opinion = opinions.subspan(variant.opinion * width, width);
            const Guide* const guide = variant.guide == WalkVariant::none ? nullptr : &guides[variant.guide];
            try {
                results[row] =
                    Walker(tables, rules[variant.rule], opinion, guide, variant, limit_bytes, watch).build(*judge);
            } catch (const OutOfTime&) {
                const std::int32_t operators = tables.problem().operators;
                results[row] = {std::vector<DeviceIndex>(operators), std::vector<std::int32_t>(operators)};
                results[row].ticks = Walk::not_built;
            }
        };
    }, 1);
    return results;
}

}  // namespace stead
