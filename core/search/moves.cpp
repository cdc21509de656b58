#include "search/moves.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace stead {
namespace {

constexpr double near_critical = 0.75;  // share of moves that start on a longest path
constexpr double to_neighbour = 0.7;    // share of moves that go to the device of a neighbour
constexpr int most_tries = 8;

}  // namespace

SearchTables::SearchTables(const Problem& given, std::span<const std::int32_t> unit_of, ResidentLimits room)
    : problem(given), limits(std::move(room)), decode(given), weights(given, limits),
      levels(heavy_edge_levels(given, unit_of)) {
    const std::int64_t k = given.devices;
    allowed.assign(units().count(), k == mask_devices ? ~std::uint64_t{0} : (std::uint64_t{1} << k) - 1);
    for (std::int32_t v = 0; v < given.operators; ++v)
        for (std::int64_t d = 0; d < k; ++d)
            if (given.duration[v * k + d] == impossible) allowed[unit_of[v]] &= ~(std::uint64_t{1} << d);
}

Moves::Moves(const SearchTables& tables, Decoder& decoder, Resident& room, Rng& rng)
    : tables_(tables), problem_(tables.problem), decoder_(decoder), resident_(room), rng_(rng),
      list_scheduling_(make_engine(tables.problem, Policy::priority, false)), run_(tables.problem),
      stamp_(tables.units().count(), 0) {}

bool Moves::stage(Move move) {
    switch (move) {
        case Move::unit: return stage_unit();
        case Move::grow: return stage_grow(6);
        case Move::grow_large: return stage_grow(64);
        case Move::block: return stage_block(false);
        case Move::block_large: return stage_block(true);
        case Move::swap: return stage_swap();
        case Move::shift: return stage_shift();
        case Move::resort: return stage_resort();
        case Move::relist: return stage_relist();
        case Move::count: break;
    }
    return false;
}

void Moves::keep() {
    decoder_.keep();
    placed_.clear();
}

void Moves::drop() {
    for (auto entry = placed_.rbegin(); entry != placed_.rend(); ++entry)
        resident_.move(entry->v, entry->to, entry->from);
    placed_.clear();
    decoder_.drop();
}

// ---- Choices ----

/// An operator of the window, most often one on a longest path.
std::int32_t Moves::focus() {
    const std::vector<std::int32_t>& critical = decoder_.critical();
    if (!critical.empty() && chance(rng_, near_critical)) return critical[below(std::ssize(critical))];
    return decoder_.order()[decoder_.first() + below(decoder_.last() - decoder_.first())];
}

/// An operator that sends something to `v` or gets something from it; -1 if there is none.
std::int32_t Moves::neighbour(std::int32_t v) {
    const std::span<const std::int32_t> reads = tables_.decode.reads[v];
    const auto in = static_cast<std::int32_t>(reads.size());
    const std::int32_t begin = problem_.consumer_first[problem_.tensor_first[v]];
    const std::int32_t out = problem_.consumer_first[problem_.tensor_first[v + 1]] - begin;
    if (in + out == 0) return -1;
    const std::int32_t pick = below(in + out);
    return pick < in ? problem_.producer[reads[pick]] : problem_.consumer[begin + pick - in];
}

/// Another device for the unit of `v`; -1 if it must stay.
int Moves::target_of(std::int32_t v) {
    const int from = decoder_.device(v);
    const std::uint64_t others = tables_.allowed[tables_.units().label[v]] & ~(std::uint64_t{1} << from);
    if (!others) return -1;
    if (chance(rng_, to_neighbour))
        for (int i = 0; i < 3; ++i) {
            const std::int32_t u = neighbour(v);
            if (u >= 0 && (others >> decoder_.device(u) & 1)) return decoder_.device(u);
        }
    std::uint64_t left = others;
    for (std::int32_t skip = below(std::popcount(others)); skip > 0; --skip) left &= left - 1;
    return std::countr_zero(left);
}

bool Moves::is_movable(std::int32_t unit) const {
    return std::ranges::all_of(tables_.units().members(unit),
                               [&](std::int32_t v) { return decoder_.position(v) < decoder_.last(); });
}

/// Stages a unit on `d` unless it may not go there or reaches behind the window.
bool Moves::place_unit(std::int32_t unit, int d) {
    if (!(tables_.allowed[unit] >> d & 1) || !is_movable(unit)) return false;
    bool changed = false;
    for (const std::int32_t v : tables_.units().members(unit)) {
        const int from = decoder_.device(v);
        if (from == d) continue;
        placed_.push_back({v, static_cast<DeviceIndex>(from), static_cast<DeviceIndex>(d)});
        resident_.move(v, from, d);
        decoder_.place(v, d);
        changed = true;
    }
    return changed;
}

// ---- Devices ----

bool Moves::stage_unit() {
    const std::int32_t v = focus();
    const int d = target_of(v);
    if (d < 0 || !place_unit(tables_.units().label[v], d)) return false;
    if (chance(rng_, 0.25)) shift(v, queue_position(v));
    return true;
}

/// Collects connected units of one device, beginning with `unit`, into grown_.
void Moves::grow(std::int32_t unit, std::int32_t most) {
    const Partition& units = tables_.units();
    const int d = decoder_.device(units.members(unit).front());
    grown_.assign(1, unit);
    stamp_[unit] = ++now_;
    for (std::int32_t tries = 4 * most; tries > 0 && std::ssize(grown_) < most; --tries) {
        const auto members = units.members(grown_[below(std::ssize(grown_))]);
        const std::int32_t u = neighbour(members[below(std::ssize(members))]);
        if (u < 0 || decoder_.device(u) != d || stamp_[units.label[u]] == now_) continue;
        stamp_[units.label[u]] = now_;
        grown_.push_back(units.label[u]);
    }
}

bool Moves::stage_grow(std::int32_t most) {
    const std::int32_t v = focus();
    grow(tables_.units().label[v], 2 + below(most - 1));
    int d = -1;  // from the rim rather than from the middle
    for (int i = 0; i < most_tries && d < 0; ++i) {
        const std::int32_t unit = grown_[below(std::ssize(grown_))];
        d = target_of(tables_.units().members(unit).front());
    }
    if (d < 0) return false;
    bool changed = false;
    for (const std::int32_t unit : grown_) changed |= place_unit(unit, d);
    return changed;
}

bool Moves::stage_block(bool large) {
    const auto levels = static_cast<std::int32_t>(tables_.levels.size());
    const std::int32_t middle = std::max(1, levels / 2);
    if (large ? middle >= levels : levels < 2) return false;
    const Partition& level =
        tables_.levels[large ? middle + below(levels - middle) : 1 + below(std::max(1, middle - 1))];
    const std::int32_t v = focus();
    const auto block = level.members(level.label[v]);
    const int d = target_of(block[below(std::ssize(block))]);
    if (d < 0) return false;
    bool changed = false;
    ++now_;
    for (const std::int32_t u : block) {
        const std::int32_t unit = tables_.units().label[u];
        if (stamp_[unit] == now_) continue;
        stamp_[unit] = now_;
        changed |= place_unit(unit, d);
    }
    return changed;
}

bool Moves::stage_swap() {
    const std::int32_t v = focus(), at = decoder_.position(v), d = decoder_.device(v);
    for (int i = 0; i < most_tries; ++i) {
        const std::int32_t other = at - 48 + below(97);
        if (other < decoder_.first() || other >= decoder_.last()) continue;
        const std::int32_t u = decoder_.order()[other];
        const int e = decoder_.device(u);
        const std::int32_t one = tables_.units().label[v], two = tables_.units().label[u];
        if (e == d || !(tables_.allowed[one] >> e & 1) || !(tables_.allowed[two] >> d & 1)) continue;
        if (!is_movable(one) || !is_movable(two)) continue;
        place_unit(one, e);
        place_unit(two, d);
        return true;
    }
    return false;
}

// ---- Order ----

/// The first and the last position that `v` could take in the window without passing what it depends on.
std::pair<std::int32_t, std::int32_t> Moves::slack(std::int32_t v) const {
    std::int32_t low = decoder_.first(), high = decoder_.last() - 1;
    for (const std::int32_t t : tables_.decode.reads[v])
        low = std::max(low, decoder_.position(problem_.producer[t]) + 1);
    for (std::int32_t i = problem_.consumer_first[problem_.tensor_first[v]];
         i < problem_.consumer_first[problem_.tensor_first[v + 1]]; ++i)
        high = std::min(high, decoder_.position(problem_.consumer[i]) - 1);
    return {low, high};
}

/// Where `v` would pass a few operators of its device, within its slack: earlier or later.
std::int32_t Moves::queue_position(std::int32_t v) {
    const auto [low, high] = slack(v);
    const int d = decoder_.device(v);
    const std::int32_t at = decoder_.position(v), way = chance(rng_, 0.7) ? -1 : 1;
    const std::int32_t end = way < 0 ? std::max(low, at - 400) : std::min(high, at + 400);
    std::int32_t pass = 1 + below(chance(rng_, 0.7) ? 3 : 12), found = at;
    for (std::int32_t i = at + way; pass > 0 && (way < 0 ? i >= end : i <= end); i += way)
        if (decoder_.device(decoder_.order()[i]) == d) {
            found = i;
            --pass;
        }
    return found;
}

/// Stages `v` at another position; those between move over.
bool Moves::shift(std::int32_t v, std::int32_t to) {
    const std::int32_t at = decoder_.position(v);
    if (at == to || at < decoder_.first() || at >= decoder_.last()) return false;
    const std::vector<std::int32_t>& order = decoder_.order();
    if (to < at) {
        span_.assign(1, v);
        span_.insert(span_.end(), order.begin() + to, order.begin() + at);
    } else {
        span_.assign(order.begin() + at + 1, order.begin() + to + 1);
        span_.push_back(v);
    }
    decoder_.arrange(std::min(at, to), span_);
    return true;
}

bool Moves::stage_shift() {
    const std::int32_t v = focus();
    return shift(v, queue_position(v));
}

/// A stretch of the window in order of decreasing tails, with a little noise.
bool Moves::stage_resort() {
    const std::int32_t size = decoder_.last() - decoder_.first();
    const std::int32_t length = std::min(size, 8 << below(7));
    const std::int32_t at = decoder_.position(focus()) - below(length);
    const std::int32_t begin = std::clamp(at, decoder_.first(), decoder_.last() - length), end = begin + length;
    const std::vector<std::int32_t>& order = decoder_.order();
    const auto inside = [&](std::int32_t v) { return decoder_.position(v) >= begin && decoder_.position(v) < end; };
    const double noise = chance(rng_, 0.5) ? 0.0 : 0.1 * uniform(rng_) * static_cast<double>(decoder_.makespan());
    const bool by_start = chance(rng_, 0.25);
    const auto key = [&](std::int32_t v) {
        const double base = static_cast<double>(by_start ? -decoder_.start(v) : decoder_.tail(v));
        return base + noise * uniform(rng_) * length / std::max(1, size);
    };
    work_ += 3 * length;  // about what the heap costs
    missing_.assign(length, 0);
    heap_.clear();
    for (std::int32_t i = begin; i < end; ++i) {
        const std::int32_t v = order[i];
        for (const std::int32_t t : tables_.decode.reads[v])
            missing_[i - begin] += inside(problem_.producer[t]);
        if (missing_[i - begin] == 0) heap_.emplace_back(key(v), -v);
    }
    std::ranges::make_heap(heap_);
    span_.clear();
    while (!heap_.empty()) {
        std::ranges::pop_heap(heap_);
        const std::int32_t v = -heap_.back().second;
        heap_.pop_back();
        span_.push_back(v);
        for (std::int32_t i = problem_.consumer_first[problem_.tensor_first[v]];
             i < problem_.consumer_first[problem_.tensor_first[v + 1]]; ++i) {
            const std::int32_t reader = problem_.consumer[i];
            if (!inside(reader) || --missing_[decoder_.position(reader) - begin] > 0) continue;
            heap_.emplace_back(key(reader), -reader);
            std::ranges::push_heap(heap_);
        }
    }
    if (std::equal(span_.begin(), span_.end(), order.begin() + begin)) return false;
    decoder_.arrange(begin, span_);
    return true;
}

/// The whole order as list scheduling by upward ranks under the present placement runs it.
bool Moves::stage_relist() {
    if (decoder_.first() > 0 || decoder_.last() < problem_.operators) return false;
    work_ += 4 * problem_.operators;  // about what ranks and list scheduling cost
    const std::int64_t k = problem_.devices;
    const double noise = chance(rng_, 0.3) ? 0.0 : 0.2 * uniform(rng_);
    rank_.assign(problem_.operators, 0.0);
    for (std::int32_t v = problem_.operators - 1; v >= 0; --v) {
        const int d = decoder_.device(v);
        double longest = 0.0;
        for (std::int32_t t = problem_.tensor_first[v]; t < problem_.tensor_first[v + 1]; ++t)
            for (std::int32_t i = problem_.consumer_first[t]; i < problem_.consumer_first[t + 1]; ++i) {
                const std::int32_t reader = problem_.consumer[i];
                const int e = decoder_.device(reader);
                const Link& way = problem_.link(d, e);
                const double move = d == e ? 0.0 : static_cast<double>(problem_.wire(t, way) + way.latency);
                longest = std::max(longest, move + rank_[reader]);
            }
        rank_[v] = static_cast<double>(problem_.duration[v * k + d]) * (1.0 + noise * uniform(rng_)) + longest;
    }
    span_.resize(problem_.operators);
    std::iota(span_.begin(), span_.end(), 0);
    std::ranges::stable_sort(span_, [&](std::int32_t a, std::int32_t b) { return rank_[a] > rank_[b]; });
    missing_.resize(problem_.operators);  // here: positions
    for (std::int32_t i = 0; i < problem_.operators; ++i) missing_[span_[i]] = i;
    list_scheduling_->simulate(decoder_.placement().data(), {missing_, {}}, never, &run_);
    if (run_.order == decoder_.order()) return false;
    decoder_.arrange(0, run_.order);
    return true;
}

}  // namespace stead
