// One work item of a local search: hill climbing or annealing with mixed moves.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/rng.h"
#include "search/decoder.h"
#include "search/moves.h"
#include "search/resident.h"

namespace stead {

/// (devices, order, sends) and its value: bytes over the limits first, then ticks.
struct SearchState {
    std::vector<DeviceIndex> devices;
    std::vector<std::int32_t> order;
    Sends sends = Sends::by_producer;
    std::int64_t overflow = 0;
    Ticks ticks = never;
    bool better_than(const SearchState& other) const {
        return overflow != other.overflow ? overflow < other.overflow : ticks < other.ticks;
    }
};

/// What a climber may spend in one round, and how it accepts.
struct Round {
    std::int64_t work = 0;  // decoded operators and moves
    double seconds = 0.0;
    bool timed = false;             // seconds are the limit that counts
    double warmth = 0.0;            // temperature in the beginning, as a share of the makespan; 0: hill climbing
    std::function<bool()> stopped;  // asked now and then
};

/// Not for two threads at a time; what it does depends on its stream of random numbers alone.
class Climber {
public:
    Climber(const SearchTables& tables, std::uint64_t seed, std::uint64_t stream);

    /// Goes on from a state that has been checked.
    void load(const DeviceIndex* devices, const std::int32_t* order, Sends sends);
    void run(const Round& round);

    const SearchState& best() const { return best_; }
    std::int64_t moves() const { return moves_; }
    std::int64_t work() const { return decoder_.decoded() + stager_.work() + moves_; }
    /// [kind of move]
    const std::array<MoveTally, move_count>& tallies() const { return tallies_; }

private:
    using Clock = std::chrono::steady_clock;

    void search(std::int64_t end);
    void sweep(std::int64_t end);
    void restart();
    void step(Move move);
    Move choose();
    void reward(Move move, Ticks gain, std::int64_t cost, bool kept = false);
    void set_shares();
    Ticks threshold();
    Ticks patience(Move move) const;
    bool over(std::int64_t end);
    void remember();

    const SearchTables& tables_;
    Rng rng_;
    Decoder decoder_;
    Resident resident_;
    Moves stager_;
    SearchState best_;
    std::int64_t overflow_ = 0;
    std::int64_t moves_ = 0;

    // Of the present round.
    Round round_;
    std::int64_t round_begin_ = 0, round_end_ = 0;
    Clock::time_point clock_begin_;
    double temperature_ = 0.0;
    bool stopped_ = false;
    std::int64_t next_look_ = 0;  // at the clock

    std::int32_t next_window_ = -1;  // where it begins; -1 before the first

    std::array<double, move_count> gain_, cost_, tries_, share_;
    int until_shares_ = 0;
    std::array<MoveTally, move_count> tallies_;
};

}  // namespace stead
