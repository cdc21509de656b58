#include "build/walk_features.h"

#include <algorithm>
#include <limits>

namespace stead {

namespace {

constexpr int most_reads = 16;    // of a reader, that are looked at: some operators read thousands of tensors
constexpr int most_readers = 64;
constexpr int most_weights = 8;

using PerDevice = std::array<double, mask_devices>;

double capped(double x, double limit) { return std::min(x, limit); }

/// Transfers of what v reads, by the device where it lies; and the producer that it waits for longest.
struct Parents {
    Parents(const WalkState& state, std::int32_t v) {
        const WalkTables& tables = state.tables;
        double latest = -1.0;
        for (const std::int32_t t : tables.list.reads[v]) {
            const std::int32_t p = tables.problem().producer[t];
            moves[state.timeline.device(p)] += tables.move[t];
            total += tables.move[t];
            const double arrival = static_cast<double>(state.finish[p]) + tables.move[t];
            if (arrival <= latest) continue;
            latest = arrival;
            critical = p;
        }
    }
    PerDevice moves{};
    double total = 0.0;
    std::int32_t critical = -1;
};

/// Where the readers of v are, or what else they read: a device that holds much of it will run them.
struct Company {
    Company(const WalkState& state, std::int32_t v) {
        const WalkTables& tables = state.tables;
        const Problem& problem = tables.problem();
        int looked = 0;
        for (std::int32_t t = problem.tensor_first[v]; t < problem.tensor_first[v + 1]; ++t)
            for (std::int32_t i = problem.consumer_first[t]; i < problem.consumer_first[t + 1]; ++i) {
                if (++looked > most_readers) return;
                add(state, v, problem.consumer[i], tables.move[t]);
            }
    }
    PerDevice moves{};
    double total = 0.0;

private:
    void add(const WalkState& state, std::int32_t v, std::int32_t reader, double move) {
        const WalkTables& tables = state.tables;
        total += move;
        const int there = state.device_of_unit[tables.list.unit_of[reader]];
        if (there >= 0) {
            moves[there] += move;
            return;
        }
        int looked = 0;
        for (const std::int32_t t : tables.list.reads[reader]) {
            if (++looked > most_reads) return;
            const std::int32_t p = tables.problem().producer[t];
            if (p == v) continue;
            const int d = state.device_of_unit[tables.list.unit_of[p]];
            if (d >= 0) moves[d] += tables.move[t];
            total += tables.move[t];
        }
    }
};

/// When the favourite reader of v could finish at best if v ran on each open device; the finish of v without a reader.
PerDevice look_ahead(const WalkState& state, const Choice& choice) {
    const WalkTables& tables = state.tables;
    const Problem& problem = tables.problem();
    const int k = problem.devices;
    PerDevice found{};
    const std::int32_t child = tables.favourite[choice.v];
    if (child < 0) {
        for (int d = 0; d < k; ++d) found[d] = static_cast<double>(choice.offer[d].finish);
        return found;
    }
    const std::int32_t unit = tables.list.unit_of[child];
    const int fixed = state.device_of_unit[unit];
    PerDevice ready;  // of the child on each device, as far as its other inputs are known
    double own_move = 0.0;
    for (int e = 0; e < k; ++e) ready[e] = static_cast<double>(state.timeline.device_end(e));
    int looked = 0;
    for (const std::int32_t t : tables.list.reads[child]) {
        if (++looked > most_reads) break;
        const std::int32_t p = problem.producer[t];
        if (p == choice.v) {
            own_move = std::max(own_move, tables.move[t]);
            continue;
        }
        const int there = state.device_of_unit[tables.list.unit_of[p]];
        if (there < 0) continue;
        const auto finish = static_cast<double>(state.finish[p]);
        for (int e = 0; e < k; ++e) ready[e] = std::max(ready[e], e == there ? finish : finish + tables.move[t]);
    }
    const Ticks* const duration = &problem.duration[std::int64_t{child} * k];
    const auto may_run = [&](int e) { return fixed >= 0 ? e == fixed : (tables.list.allowed[unit] >> e & 1) != 0; };
    for (int d = 0; d < k; ++d) {
        if (!choice.open[d]) continue;
        const auto finish = static_cast<double>(choice.offer[d].finish);
        double best = std::numeric_limits<double>::infinity();
        for (int e = 0; e < k; ++e)
            if (may_run(e))
                best = std::min(best, std::max(ready[e], e == d ? finish : finish + own_move) +
                                          static_cast<double>(duration[e]));
        found[d] = best;
    }
    return found;
}

/// How many units on each device share weights with `unit`.
PerDevice sharing(const WalkState& state, std::int32_t unit, double& total) {
    const int k = state.tables.problem().devices;
    PerDevice found{};
    int looked = 0;
    for (const std::int32_t w : state.tables.list.weights[unit]) {
        if (++looked > most_weights) break;
        for (int d = 0; d < k; ++d) {
            const double uses = state.weight_uses[std::int64_t{w} * k + d];
            found[d] += uses;
            total += uses;
        }
    }
    return found;
}

template <class Value>
double least_of(const Choice& choice, int devices, Value value) {
    double least = std::numeric_limits<double>::infinity();
    for (int d = 0; d < devices; ++d)
        if (choice.open[d]) least = std::min(least, value(d));
    return least;
}

}  // namespace

WalkState::WalkState(const WalkTables& given, std::span<const std::int64_t> limit)
    : tables(given), timeline(given.list, true), room(given.list, limit), limit_bytes(limit),
      device_of_unit(given.list.units(), -1), pending(given.problem().devices, 0),
      finish(given.problem().operators, 0), load(given.problem().devices, 0.0), used(given.problem().devices, 0),
      weight_uses(std::int64_t{given.problem().weights} * given.problem().devices, 0) {}

Ticks WalkState::rest(std::int32_t unit, std::int32_t v, int d) const {
    if (tables.list.members[unit].size() == 1) return 0;
    return pending[d] + tables.unit_length(unit, d) - tables.problem().duration[std::int64_t{v} * pending.size() + d];
}

void WalkState::place(std::int32_t unit, std::int32_t v, int d) {
    room.take(unit, d, device_of_unit);
    if (tables.list.members[unit].size() > 1)
        pending[d] = rest(unit, v, d) + tables.problem().duration[std::int64_t{v} * pending.size() + d];
    device_of_unit[unit] = d;
    used[d] = 1;
    last = d;
    for (const std::int32_t w : tables.list.weights[unit]) ++weight_uses[std::int64_t{w} * pending.size() + d];
}

void WalkState::run(std::int32_t v, int d) {
    const Ticks ticks = tables.problem().duration[std::int64_t{v} * pending.size() + d];
    if (tables.list.members[tables.list.unit_of[v]].size() > 1) pending[d] -= ticks;
    load[d] += static_cast<double>(ticks);
    done += tables.length[v];
    finish[v] = timeline.offer(v, d).finish;
    timeline.run(v, d);
}

double local_scale(const WalkTables& tables, std::int32_t v) {
    return tables.typical + tables.length[v] + tables.incoming[v];
}

void describe_devices(const WalkState& state, const Choice& choice, FeatureTable& features) {
    const WalkTables& tables = state.tables;
    const int k = tables.problem().devices;
    const std::int32_t v = choice.v, unit = choice.unit;
    const double scale = local_scale(tables, v), horizon = tables.horizon;
    const Parents parents(state, v);
    const Company company(state, v);
    const PerDevice ahead = look_ahead(state, choice);
    double shared = 0.0, loaded = 0.0;
    const PerDevice sharers = sharing(state, unit, shared);
    const double* const optimistic = &tables.optimistic[std::int64_t{v} * k];
    const double finish = least_of(choice, k, [&](int d) { return static_cast<double>(choice.offer[d].finish); });
    const double ready = least_of(choice, k, [&](int d) { return static_cast<double>(choice.offer[d].ready); });
    const double behind = least_of(choice, k, [&](int d) { return optimistic[d]; });
    const double soonest = least_of(choice, k, [&](int d) { return ahead[d]; });
    double end = std::numeric_limits<double>::infinity();
    for (int d = 0; d < k; ++d) {
        end = std::min(end, static_cast<double>(state.timeline.device_end(d)));
        loaded += state.load[d];
    }
    const std::int32_t forward = tables.list.unit_of[tables.forward_of[v]];
    const int beside = forward == unit ? -1 : state.device_of_unit[forward];
    const std::int32_t heir = parents.critical < 0 ? -1 : tables.favourite[parents.critical];
    const bool heir_waits = heir >= 0 && heir != v && state.device_of_unit[tables.list.unit_of[heir]] < 0;
    const bool ample = state.room.is_ample();
    for (int d = 0; d < k; ++d) {
        if (!choice.open[d]) continue;
        const Offer& offer = choice.offer[d];
        const double later = static_cast<double>(offer.finish) - finish, moved = static_cast<double>(offer.moved);
        const auto duration = static_cast<double>(tables.problem().duration[std::int64_t{v} * k + d]);
        const bool critical = parents.critical >= 0 && state.timeline.device(parents.critical) == d;
        int f = 0;
        const auto put = [&](double x) { features[f++][d] = x; };
        put(folds(later / scale));
        put(capped(20 * later / horizon, 2));
        put(folds((static_cast<double>(offer.ready) - ready) / scale));
        put(folds(static_cast<double>(offer.start - offer.ready) / scale));
        put(folds(moved / scale));
        put(capped(20 * moved / horizon, 2));
        put(capped(5 * (static_cast<double>(state.timeline.device_end(d)) - end) / horizon, 2));
        put(std::clamp((state.load[d] * k - loaded) / tables.total, -2.0, 2.0));
        put(capped(2 * static_cast<double>(state.rest(unit, v, d)) / horizon, 3));
        put(capped(duration / (tables.length[v] + 1) - 1, 3));
        put(capped(static_cast<double>(tables.unit_length(unit, d)) / (tables.unit_mean[unit] + 1) - 1, 3));
        put(folds((optimistic[d] - behind) / scale));
        put(capped(20 * (optimistic[d] - behind) / horizon, 2));
        put(parents.total > 0 ? parents.moves[d] / parents.total : 0);
        put(company.total > 0 ? company.moves[d] / company.total : 0);
        put(shared > 0 ? sharers[d] / shared : 0);
        put(beside == d);
        put(state.last == d);
        put(state.used[d]);
        put(critical);
        put(critical && heir_waits);
        put(critical && heir == v);
        put(folds((ahead[d] - soonest) / scale));
        put(capped(20 * (ahead[d] - soonest) / horizon, 2));
        put(later <= 0);
        put(folds(company.moves[d] / scale));
        put(ample ? 0 : 1 - static_cast<double>(state.room.free_bytes(d)) / static_cast<double>(state.limit_bytes[d] + 1));
    }
}

std::array<double, unit_contexts> describe_unit(const WalkState& state, const Choice& choice) {
    const WalkTables& tables = state.tables;
    return {state.done / tables.total - 0.5, static_cast<double>(tables.problem().phase[choice.v] > 0),
            folds(tables.unit_mean[choice.unit] / tables.typical) / 4,
            capped(folds(tables.incoming[choice.v] / (tables.length[choice.v] + 1)) / 4, 2)};
}

std::array<double, queue_features> describe_ready(const WalkState& state, std::int32_t v) {
    const WalkTables& tables = state.tables;
    const Problem& problem = tables.problem();
    Ticks ready = 0;
    for (const std::int32_t t : tables.list.reads[v]) ready = std::max(ready, state.finish[problem.producer[t]]);
    const double typical = tables.typical;
    return {2 * static_cast<double>(ready) / tables.horizon,
            folds(tables.length[v] / typical),
            folds(tables.outgoing[v] / typical),
            folds(tables.incoming[v] / typical),
            folds(tables.readers[v]),
            folds(problem.inputs[v]),
            static_cast<double>(problem.phase[v] == 1),
            static_cast<double>(problem.phase[v] == 2),
            tables.bare_rank[v] / (5 * typical),
            5 * tables.rank_by(Average::mean)[v] / tables.longest_rank,
            5.0 * v / problem.operators,
            static_cast<double>(state.device_of_unit[tables.list.unit_of[v]] >= 0)};
}

}  // namespace stead
