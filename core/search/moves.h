// Moves of a local search on (devices, order): what to try next, staged on a decoder.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/problem.h"
#include "base/rng.h"
#include "search/blocks.h"
#include "search/decoder.h"
#include "search/resident.h"
#include "sim/policies/engine.h"

namespace stead {

/// What all work items of a search share.
struct SearchTables {
    SearchTables(const Problem& problem, std::span<const std::int32_t> unit_of, ResidentLimits limits);

    const Problem& problem;
    ResidentLimits limits;
    DecodeTables decode;
    WeightTables weights;
    std::vector<Partition> levels;       // units, then ever larger blocks
    std::vector<std::uint64_t> allowed;  // [unit]; devices as bits
    const Partition& units() const { return levels.front(); }
};

inline double uniform(Rng& rng) { return static_cast<double>(rng.next() >> 11) * 0x1p-53; }
inline bool chance(Rng& rng, double probability) { return uniform(rng) < probability; }

enum class Move : std::uint8_t {
    unit,         // a unit to another device
    grow,         // a few connected units of one device to another
    grow_large,   // many of them
    block,        // a block of the hierarchy
    block_large,  // one of the upper half
    swap,         // two units exchange their devices
    shift,        // an operator earlier or later in the order
    resort,       // a stretch of the order by tails
    relist,       // the whole order by list scheduling
    count
};
inline constexpr int move_count = static_cast<int>(Move::count);
inline constexpr std::array<const char*, move_count> move_names{
    "one unit", "few units", "many units", "block", "large block", "swap", "shift", "sort a stretch", "sort all"};

/// What moves of one kind came to.
struct MoveTally {
    const char* name = "";
    std::int64_t tried = 0;
    std::int64_t kept = 0;
    std::int64_t work = 0;  // operators decoded or looked at, and moves
    double gain = 0.0;      // by what share each one shortened its schedule, all together

    void add(const MoveTally& other) {
        tried += other.tried;
        kept += other.kept;
        work += other.work;
        gain += other.gain;
    }
};

/// Stages moves on a decoder, most of them near longest paths.
class Moves {
public:
    Moves(const SearchTables& tables, Decoder& decoder, Resident& room, Rng& rng);

    /// Stages a move; false if there is nothing to stage. Then `keep` or `drop` is called.
    bool stage(Move move);
    void keep();
    void drop();
    /// Operators looked at besides those that the decoder counts.
    std::int64_t work() const { return work_; }

private:
    struct Placed {
        std::int32_t v;
        DeviceIndex from, to;
    };

    bool stage_unit();
    bool stage_grow(std::int32_t most);
    bool stage_block(bool large);
    bool stage_swap();
    bool stage_shift();
    bool stage_resort();
    bool stage_relist();

    std::int32_t below(std::int64_t count) {
        return static_cast<std::int32_t>(rng_.below(static_cast<std::uint32_t>(count)));
    }
    std::int32_t focus();
    std::int32_t neighbour(std::int32_t v);
    int target_of(std::int32_t v);
    bool place_unit(std::int32_t unit, int d);
    void grow(std::int32_t unit, std::int32_t most);
    bool shift(std::int32_t v, std::int32_t to);
    std::int32_t queue_position(std::int32_t v);
    std::pair<std::int32_t, std::int32_t> slack(std::int32_t v) const;
    bool is_movable(std::int32_t unit) const;

    const SearchTables& tables_;
    const Problem& problem_;
    Decoder& decoder_;
    Resident& resident_;
    Rng& rng_;
    std::unique_ptr<Engine> list_scheduling_;
    Run run_;
    std::vector<Placed> placed_;
    std::vector<std::int32_t> grown_;  // units
    std::vector<std::int32_t> stamp_;  // [unit]; the last time it was looked at
    std::int32_t now_ = 0;
    std::vector<std::int32_t> span_, missing_;
    std::vector<std::pair<double, std::int32_t>> heap_;
    std::vector<double> rank_;
    std::int64_t work_ = 0;
};

}  // namespace stead
