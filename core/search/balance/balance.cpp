#include "search/balance/balance.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "base/rng.h"
#include "search/balance/anneal.h"
#include "search/balance/descent.h"
#include "search/balance/starts.h"
#include "search/balance/stopper.h"

namespace stead {
namespace {

void check_limits(const SearchLimits& limits) {
    constexpr std::int64_t most = std::int64_t{1} << 40;
    if (limits.moves < 0 || limits.moves > most) fail("moves must lie in 0..", most, ", got ", limits.moves);
}

void check_starts(const Supernodes& nodes, const Starts& starts) {
    for (std::int64_t row = 0; row < starts.rows; ++row)
        for (std::int32_t v = 0; v < nodes.count(); ++v) {
            const int d = starts.data[row * nodes.count() + v];
            if (d >= nodes.devices || !nodes.may_run(v, d))
                fail("start ", row, ": supernode ", v, " may not run on device ", d);
        }
}

std::span<const DeviceIndex> row_of(const Starts& starts, std::int64_t row, const Supernodes& nodes) {
    return {starts.data + row * nodes.count(), static_cast<std::size_t>(nodes.count())};
}

bool better(const Balanced& one, const Balanced& other) {
    return one.ticks != impossible && (other.ticks == impossible || one.ticks < other.ticks);
}

/// The best of all chains; the trail is that of chains run one after another.
Balanced best_of(std::vector<Balanced> chains) {
    Balanced best;
    std::vector<TrailPoint> trail;
    std::int64_t moves = 0;
    for (Balanced& chain : chains) {
        for (const TrailPoint& point : chain.trail)
            if (trail.empty() || point.ticks < trail.back().ticks) trail.push_back({moves + point.spent, point.ticks});
        moves += chain.moves;
        if (best.devices.empty() || better(chain, best)) best = std::move(chain);
    }
    best.moves = moves;
    best.trail = std::move(trail);
    return best;
}

}  // namespace

Balanced balance(const Supernodes& nodes, const Starts& starts, int restarts, std::uint64_t seed,
                 const SearchLimits& limits, const Workers& workers) {
    if (restarts < 0) fail("restarts must be at least 0, got ", restarts);
    check_limits(limits);
    check_starts(nodes, starts);
    const std::int64_t count = std::max<std::int64_t>({restarts, starts.rows, 1});
    std::vector<Balanced> chains(count);
    Stopper stopper(limits.seconds, workers);
    run_items(count, workers, stopper, [&](std::int64_t i) {
        Rng rng(seed, i);
        const std::int64_t moves = limits.moves * (i + 1) / count - limits.moves * i / count;
        std::vector<DeviceIndex> own;
        if (i >= starts.rows) own = (i - starts.rows) % 2 == 0 ? balanced_start(nodes, rng) : random_start(nodes, rng);
        const auto start = i < starts.rows ? row_of(starts, i, nodes) : std::span<const DeviceIndex>(own);
        chains[i] = anneal(nodes, i, rng, start, moves, stopper);
    });
    return best_of(std::move(chains));
}

Descents descend(const Supernodes& nodes, const Starts& starts, std::span<const std::uint8_t> targets,
                 double least_gain, const SearchLimits& limits, const Workers& workers) {
    check_limits(limits);
    check_starts(nodes, starts);
    if (!(least_gain >= 0)) fail("least_gain must be at least 0, got ", least_gain);
    if (static_cast<int>(targets.size()) != nodes.devices)
        fail("targets needs ", nodes.devices, " entries, got ", targets.size());
    std::uint64_t mask = 0;
    for (int d = 0; d < nodes.devices; ++d) mask |= std::uint64_t{targets[d] != 0} << d;
    Descents found{.supernodes = nodes.count(),
                   .devices = std::vector<DeviceIndex>(starts.rows * nodes.count()),
                   .ticks = std::vector<Ticks>(starts.rows),
                   .moves = std::vector<std::int64_t>(starts.rows)};
    Stopper stopper(limits.seconds, workers);
    run_items(starts.rows, workers, stopper, [&](std::int64_t i) {
        const std::int64_t moves = limits.moves * (i + 1) / starts.rows - limits.moves * i / starts.rows;
        const DescentEnd end = descend_from(nodes, row_of(starts, i, nodes), mask, least_gain, moves, stopper);
        std::ranges::copy(end.devices, found.devices.begin() + i * nodes.count());
        found.ticks[i] = end.ticks;
        found.moves[i] = end.moves;
    });
    return found;
}

}  // namespace stead
