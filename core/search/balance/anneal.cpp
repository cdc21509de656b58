#include "search/balance/anneal.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "search/balance/moving_loads.h"
#include "search/balance/score.h"

namespace stead {
namespace {

// The temperature falls geometrically in steps. Where communication is dear a hot chain forgets a good
// start, and where work is hard to divide a cold one gets stuck: chains take turns.
constexpr int cooling_steps = 512;
constexpr double to_a_fiftieth = 0.9923884457843126;  // 50^(-1/512)
constexpr double far_down = 0.9821718891880378;       // 10000^(-1/512)
struct Heat {
    double temperature;  // at first, for loads to the power of 16
    double cooling;      // factor of each step
    bool sharpens;       // the power grows from 2 to 64
};
constexpr std::array heats = {Heat{0.02, to_a_fiftieth, false}, Heat{0.005, to_a_fiftieth, false},
                              Heat{0.02, to_a_fiftieth, true},  Heat{0.1, to_a_fiftieth, true},
                              Heat{0.3, far_down, true},        Heat{0.3, far_down, false}};

// Where transfers take less than units, no temperature suits both: one that lets units change places forgets where to
// cut, and one that minds the cuts moves no unit. A low power minds all that devices do together and little how it is
// divided; then it grows.
constexpr int fewest_squarings = 1;
constexpr int most_squarings = 6;
constexpr int usual_squarings = 4;

// Every so many moves a connected block of supernodes moves, of 2, 4, .. or 2^6 at most.
constexpr int block_every = 16;
constexpr int largest_block_bits = 6;

class Chain {
public:
    Chain(const Supernodes& nodes, Heat heat, Rng rng)
        : nodes_(nodes),
          heat_(heat),
          rng_(rng),
          loads_(nodes),
          score_(nodes, loads_),
          in_block_(nodes.count(), 0) {}

    Balanced run(std::span<const DeviceIndex> start, std::int64_t moves, Stopper& stopper) {
        double temperature = heat_.temperature;
        loads_.place(start);
        score_.reset(generous_reference());
        note_value();
        std::int64_t cooled = 0;
        sharpen(cooled);
        if (nodes_.count() == 0 || nodes_.devices < 2) moves = 0;
        for (; best_.moves < moves; ++best_.moves) {
            if (best_.moves % moves_between_polls == 0 && stopper.stop()) break;
            if (best_.moves >= (cooled + 1) * moves / cooling_steps) {
                ++cooled;
                temperature *= heat_.cooling;
                sharpen(cooled);
            }
            step(temperature * sharpness_);
        }
        keep_best();
        if (best_.devices.empty()) best_.devices.assign(loads_.devices().begin(), loads_.devices().end());
        return std::move(best_);
    }

private:
    /// The power of the score after so many steps of cooling; what is the same change of loads then costs as much more.
    void sharpen(std::int64_t cooled) {
        if (!heat_.sharpens) return;
        constexpr int stages = most_squarings - fewest_squarings + 1;
        const auto stage = std::min<std::int64_t>(stages - 1, cooled * stages / cooling_steps);
        const int squarings = fewest_squarings + static_cast<int>(stage);
        if (squarings == squarings_) return;
        squarings_ = squarings;
        sharpness_ = std::ldexp(1.0, squarings - usual_squarings);
        score_.sharpen(squarings);
    }

    /// A value so large that loads weigh less than penalties as long as no placement is known that is valid.
    Ticks generous_reference() const {
        Ticks sum = 0;
        for (std::int32_t v = 0; v < nodes_.count(); ++v) {
            Ticks slowest = 0;
            for (int d = 0; d < nodes_.devices; ++d)
                for (int phase = 0; phase < nodes_.phases; ++phase)
                    slowest = std::max(slowest, nodes_.compute(v, d, phase));
            sum += slowest;
        }
        return sum + loads_.value();
    }

    /// Tries one move: of one supernode, of two together, of two against each other, or of a connected block.
    void step(double temperature) {
        const auto v = static_cast<std::int32_t>(rng_.below(nodes_.count()));
        const std::int32_t near = neighbour(v);
        const int from = loads_.device(v);
        int to = near >= 0 && rng_.below(4) != 0 ? loads_.device(near) : random_device();
        if (to == from) to = random_device();
        if (to == from || !nodes_.may_run(v, to)) return;
        moves_.assign(1, {v, to});
        if (rng_.below(block_every) == 0) {
            add_block(from, to);
        } else if (rng_.below(3) == 0) {
            add(neighbour(v), to);
        } else if (rng_.below(4) == 0) {
            const auto other = static_cast<std::int32_t>(rng_.below(nodes_.count()));
            if (loads_.device(other) == to) add(other, from);
        }
        try_moves(score_.now() + temperature * rng_.exponential());
    }

    void add(std::int32_t v, int to) {
        if (v < 0 || v == moves_[0].v || loads_.device(v) == to || !nodes_.may_run(v, to)) return;
        moves_.push_back({v, to});
    }

    /// Adds supernodes of device `from` around the first one moved, breadth first.
    void add_block(int from, int to) {
        const std::size_t most = std::size_t{2} << rng_.below(largest_block_bits);
        ++block_;
        in_block_[moves_[0].v] = block_;
        for (std::size_t i = 0; i < moves_.size() && moves_.size() < most; ++i) {
            const std::int32_t v = moves_[i].v;
            for (std::int32_t j = nodes_.near_first[v]; j < nodes_.near_first[v + 1] && moves_.size() < most; ++j) {
                const std::int32_t near = nodes_.near[j];
                if (in_block_[near] == block_ || loads_.device(near) != from || !nodes_.may_run(near, to)) continue;
                in_block_[near] = block_;
                moves_.push_back({near, to});
            }
        }
    }

    /// Makes all moves if the score stays below `limit`, else none.
    void try_moves(double limit) {
        if (moves_.size() > 1) keep_best();
        std::uint64_t touched = 0;
        for (std::size_t i = 0; i + 1 < moves_.size(); ++i) {
            const int from = loads_.device(moves_[i].v);
            touched |= make(moves_[i]);
            moves_[i].to = from;
        }
        if (touched != 0) score_.update(touched);
        loads_.consider(moves_.back().v, moves_.back().to);
        if (score_.considered() <= limit) {
            keep_best();
            score_.update(commit());
            note_value();
            return;
        }
        if (touched == 0) return;
        for (std::size_t i = moves_.size() - 1; i-- > 0;) touched |= make(moves_[i]);
        score_.update(touched);
    }

    struct Move {
        std::int32_t v;
        int to;
    };

    /// The devices whose loads have changed.
    std::uint64_t make(const Move& move) {
        loads_.consider(move.v, move.to);
        return commit();
    }
    std::uint64_t commit() {
        const std::uint64_t touched = loads_.touched();
        loads_.commit();
        return touched;
    }

    std::int32_t neighbour(std::int32_t v) {
        const std::int32_t count = nodes_.near_first[v + 1] - nodes_.near_first[v];
        return count == 0 ? -1 : nodes_.near[nodes_.near_first[v] + rng_.below(count)];
    }

    int random_device() { return static_cast<int>(rng_.below(nodes_.devices)); }

    /// Notes that the current placement is the best so far, if it is; it is copied only once the chain leaves it.
    void note_value() {
        if (!score_.valid()) return;
        const Ticks found = loads_.value();
        if (best_.ticks != impossible && found >= best_.ticks) return;
        best_.ticks = found;
        best_.trail.push_back({best_.moves, found});
        kept_ = false;
        score_.reset(found);
    }

    void keep_best() {
        if (kept_) return;
        best_.devices.assign(loads_.devices().begin(), loads_.devices().end());
        kept_ = true;
    }

    const Supernodes& nodes_;
    const Heat heat_;
    Rng rng_;
    MovingLoads loads_;
    Score score_;
    Balanced best_;
    std::vector<Move> moves_;              // of one step
    std::vector<std::uint32_t> in_block_;  // [supernode]; the last block it was in
    std::uint32_t block_ = 0;
    int squarings_ = usual_squarings;
    double sharpness_ = 1.0;  // the power over the usual one
    bool kept_ = true;
};

}  // namespace

Balanced anneal(const Supernodes& nodes, std::int64_t number, Rng rng, std::span<const DeviceIndex> start,
                std::int64_t moves, Stopper& stopper) {
    return Chain(nodes, heats[number % heats.size()], rng).run(start, moves, stopper);
}

}  // namespace stead
