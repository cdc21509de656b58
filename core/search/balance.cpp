#include "search/balance.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "base/fail.h"
#include "base/rng.h"

namespace stead {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t moves_between_polls = 4096;
constexpr auto interrupt_interval = std::chrono::milliseconds(20);

// The score is the sum over devices and lanes of (load / best value so far)^16, which is nearly the largest load but
// also tells the second largest; a power of 2 needs multiplications and square roots only, which are exact everywhere.
constexpr double overfull_penalty = 10.0;
constexpr double overfull_slope = 100.0;
constexpr double blocked_penalty = 1000.0;

// The temperature falls geometrically in steps. Where communication is dear a hot chain forgets a good
// start, and where work is hard to divide a cold one gets stuck: chains take turns.
constexpr int cooling_steps = 512;
constexpr double to_a_fiftieth = 0.9923884457843126;  // 50^(-1/512)
constexpr double far_down = 0.9821718891880378;       // 10000^(-1/512)
struct Heat {
    double temperature;  // at first
    double cooling;      // factor of each step
};
constexpr std::array heats = {Heat{0.02, to_a_fiftieth}, Heat{0.005, to_a_fiftieth}, Heat{0.1, to_a_fiftieth},
                              Heat{0.5, to_a_fiftieth},  Heat{0.3, far_down},       Heat{0.3, far_down}};

// Every so many moves a connected block of supernodes moves, of 2, 4, .. or 2^6 at most.
constexpr int block_every = 16;
constexpr int largest_block_bits = 6;

double power16(double x) {
    x *= x;
    x *= x;
    x *= x;
    return x * x;
}

double root16(double x) { return std::sqrt(std::sqrt(std::sqrt(std::sqrt(x)))); }

/// Tells the threads of one search when to stop.
class Stopper {
public:
    Stopper(double seconds, const Workers& workers)
        : interrupted_(workers.interrupted), caller_(std::this_thread::get_id()) {
        if (std::isnan(seconds) || seconds < 0) fail("seconds must be at least 0, got ", seconds);
        if (seconds >= 1e9) return;  // further than the clock may count
        const std::chrono::duration<double> allowed(seconds);
        deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(allowed);
    }

    /// Asked by every thread now and then; the calling thread also looks for interrupts.
    bool stop() {
        if (stopped_) return true;
        const auto now = Clock::now();
        if (deadline_ && now >= *deadline_) return stopped_ = true;
        if (interrupted_ && std::this_thread::get_id() == caller_ && now - last_ >= interrupt_interval) {
            last_ = now;
            if (interrupted_()) stopped_ = true;
        }
        return stopped_;
    }
    void stop_now() { stopped_ = true; }

private:
    std::function<bool()> interrupted_;
    std::thread::id caller_;
    std::optional<Clock::time_point> deadline_;
    Clock::time_point last_ = Clock::now();
    std::atomic<bool> stopped_ = false;
};

/// Runs work(0) .. work(items - 1) on threads, in order; an interrupt ends it like the clock does.
void run_items(std::int64_t items, const Workers& workers, Stopper& stopper,
               const std::function<void(std::int64_t)>& work) {
    if (workers.threads < 0) fail("threads must be 0 (all cores) or more, got ", workers.threads);
    const std::int64_t cores = std::max(1u, std::thread::hardware_concurrency());
    const std::int64_t threads = std::min(items, workers.threads > 0 ? workers.threads : cores);
    std::atomic<std::int64_t> next = 0, done = 0;
    std::mutex mutex;
    std::exception_ptr error;
    const auto take_items = [&] {
        for (std::int64_t i = next++; i < items; i = next++) {
            try {
                work(i);
            } catch (...) {
                const std::lock_guard lock(mutex);
                if (!error) error = std::current_exception();
                stopper.stop_now();
            }
            ++done;
        }
    };
    {
        std::vector<std::jthread> others;
        for (std::int64_t i = 1; i < threads; ++i) others.emplace_back(take_items);
        take_items();
        while (done < items) {  // others are still at work: go on looking for interrupts
            stopper.stop();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    if (error) std::rethrow_exception(error);
}

/// A placement for a chain to start from, in which everything is allowed.
std::vector<std::uint8_t> random_start(const Supernodes& nodes, Rng& rng) {
    std::vector<std::uint8_t> devices(nodes.count());
    for (std::int32_t v = 0; v < nodes.count(); ++v) {
        std::uint64_t options = nodes.allowed[v];
        for (std::uint32_t skip = rng.below(std::popcount(options)); skip > 0; --skip) options &= options - 1;
        devices[v] = static_cast<std::uint8_t>(std::countr_zero(options));
    }
    return devices;
}

/// Fills devices one after another, in the order given, each up to `limit`; what is not allowed there goes where it is
/// quickest. Whether everything found a place.
bool fill_devices(const Supernodes& nodes, std::span<const int> order, Ticks limit,
                  std::vector<std::uint8_t>& devices) {
    const auto ticks = [&](std::int32_t v, int d) {
        Ticks sum = 0;
        for (int phase = 0; phase < nodes.phases; ++phase) sum += nodes.compute(v, d, phase);
        return sum;
    };
    std::size_t at = 0;
    Ticks filled = 0;
    for (const std::int32_t v : nodes.by_position) {
        while (at < order.size() && nodes.may_run(v, order[at]) && filled + ticks(v, order[at]) > limit) {
            ++at;
            filled = 0;
        }
        if (at == order.size()) return false;
        int d = order[at];
        if (nodes.may_run(v, d)) {
            filled += ticks(v, d);
        } else {
            d = std::countr_zero(nodes.allowed[v]);
            for (int other = d; other < nodes.devices; ++other)
                if (nodes.may_run(v, other) && ticks(v, other) < ticks(v, d)) d = other;
        }
        devices[v] = static_cast<std::uint8_t>(d);
    }
    return true;
}

/// Supernodes in the order of their first operators, cut into pieces of about equal time; devices in random order.
std::vector<std::uint8_t> balanced_start(const Supernodes& nodes, Rng& rng) {
    std::vector<int> order(nodes.devices);
    std::iota(order.begin(), order.end(), 0);
    for (int i = nodes.devices - 1; i > 0; --i) std::swap(order[i], order[rng.below(i + 1)]);
    std::vector<std::uint8_t> devices = random_start(nodes, rng);
    Ticks low = 0, high = Ticks{1} << 62;
    while (high - low > 1 + high / 256) {
        const Ticks middle = low + (high - low) / 2;
        (fill_devices(nodes, order, middle, devices) ? high : low) = middle;
    }
    fill_devices(nodes, order, high, devices);
    return devices;
}

/// What annealing lowers: nearly the largest load, plus penalties for what may not be.
class Score {
public:
    Score(const Supernodes& nodes, const MovingLoads& loads)
        : nodes_(nodes), loads_(loads), powers_(nodes.devices), penalties_(nodes.devices, 0.0) {}

    /// Starts again with loads relative to `reference`.
    void reset(Ticks reference) {
        scale_ = 1.0 / static_cast<double>(std::max<Ticks>(reference, 1));
        for (int d = 0; d < nodes_.devices; ++d) {
            powers_[d] = powers(loads_.lanes(d));
            penalties_[d] = penalty(d, loads_.bytes(d));
        }
        add_up();
    }

    double now() const { return now_; }

    /// The score after the move that the loads consider.
    double considered() const {
        Powers total = total_;
        double penalty_sum = penalty_sum_;
        for (std::uint64_t left = loads_.touched(); left != 0; left &= left - 1) {
            const int d = std::countr_zero(left);
            const Powers fresh = powers(loads_.new_lanes(d));
            for (int lane = 0; lane < max_lanes; ++lane) total[lane] += fresh[lane] - powers_[d][lane];
            if (loads_.new_bytes(d) != loads_.bytes(d)) penalty_sum += penalty(d, loads_.new_bytes(d)) - penalties_[d];
        }
        return combined(total, penalty_sum, loads_.new_blocked());
    }

    /// Takes over what the loads have just committed.
    void update(std::uint64_t touched) {
        for (; touched != 0; touched &= touched - 1) {
            const int d = std::countr_zero(touched);
            powers_[d] = powers(loads_.lanes(d));
            penalties_[d] = penalty(d, loads_.bytes(d));
        }
        add_up();
    }

    bool valid() const { return penalty_sum_ == 0.0 && loads_.blocked() == 0; }

private:
    using Powers = std::array<double, max_lanes>;

    Powers powers(const Lanes& lanes) const {
        Powers result;
        for (int lane = 0; lane < max_lanes; ++lane) result[lane] = power16(static_cast<double>(lanes[lane]) * scale_);
        return result;
    }

    double penalty(int d, std::int64_t bytes) const {
        const std::int64_t room = nodes_.room_bytes[d];
        if (bytes <= room) return 0.0;
        return overfull_penalty + overfull_slope * static_cast<double>(bytes - room) / static_cast<double>(room + 1);
    }

    double combined(const Powers& total, double penalties, std::int64_t blocked) const {
        const double loads = nodes_.load == LoadKind::fwbw
                                 ? power16(root16(std::max(total[0], 0.0)) + root16(std::max(total[1], 0.0)))
                                 : total[0] + total[1] + total[2];
        return loads + penalties + blocked_penalty * static_cast<double>(blocked);
    }

    /// Sums afresh, so that rounding errors do not pile up.
    void add_up() {
        total_ = {};
        penalty_sum_ = 0.0;
        for (int d = 0; d < nodes_.devices; ++d) {
            for (int lane = 0; lane < max_lanes; ++lane) total_[lane] += powers_[d][lane];
            penalty_sum_ += penalties_[d];
        }
        now_ = combined(total_, penalty_sum_, loads_.blocked());
    }

    const Supernodes& nodes_;
    const MovingLoads& loads_;
    double scale_ = 1.0;
    std::vector<Powers> powers_;     // [device]
    std::vector<double> penalties_;  // [device]
    Powers total_ = {};
    double penalty_sum_ = 0.0, now_ = 0.0;
};

/// One annealing from one start.
class Chain {
public:
    Chain(const Supernodes& nodes, Heat heat, Rng rng)
        : nodes_(nodes),
          heat_(heat),
          rng_(rng),
          loads_(nodes),
          score_(nodes, loads_),
          in_block_(nodes.count(), 0) {}

    Balanced run(std::span<const std::uint8_t> start, std::int64_t moves, Stopper& stopper) {
        double temperature = heat_.temperature;
        loads_.place(start);
        score_.reset(generous_reference());
        note_value();
        std::int64_t cooled = 0;
        if (nodes_.count() == 0 || nodes_.devices < 2) moves = 0;
        for (; best_.moves < moves; ++best_.moves) {
            if (best_.moves % moves_between_polls == 0 && stopper.stop()) break;
            if (best_.moves >= (cooled + 1) * moves / cooling_steps) {
                ++cooled;
                temperature *= heat_.cooling;
            }
            step(temperature);
        }
        keep_best();
        if (best_.devices.empty()) best_.devices.assign(loads_.devices().begin(), loads_.devices().end());
        return std::move(best_);
    }

private:
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
    bool kept_ = true;
};

/// Single moves downhill from one start.
class Descent {
public:
    Descent(const Supernodes& nodes, std::uint64_t targets, double least_gain)
        : nodes_(nodes), loads_(nodes), targets_(targets), least_gain_(least_gain) {}

    Balanced run(std::span<const std::uint8_t> start, std::int64_t moves, Stopper& stopper) {
        loads_.place(start);
        Balanced found;
        while (find_best(moves, stopper, found) && is_gain()) {
            loads_.consider(best_node_, best_device_);
            loads_.commit();
        }
        found.devices.assign(loads_.devices().begin(), loads_.devices().end());
        if (loads_.blocked() == 0) found.ticks = loads_.value();
        return found;
    }

private:
    /// Looks at every single move for the best one; false if a limit came first.
    bool find_best(std::int64_t moves, Stopper& stopper, Balanced& found) {
        best_blocked_ = std::numeric_limits<std::int64_t>::max();
        for (std::int32_t v = 0; v < nodes_.count(); ++v)
            for (std::uint64_t left = targets_ & nodes_.allowed[v]; left != 0; left &= left - 1) {
                const int d = std::countr_zero(left);
                if (d == loads_.device(v)) continue;
                if (found.moves == moves || (found.moves % moves_between_polls == 0 && stopper.stop())) return false;
                ++found.moves;
                loads_.consider(v, d);
                const std::int64_t blocked = loads_.new_blocked();
                const Ticks value = loads_.new_value();
                if (std::pair(blocked, value) >= std::pair(best_blocked_, best_value_)) continue;
                best_blocked_ = blocked;
                best_value_ = value;
                best_node_ = v;
                best_device_ = d;
            }
        return best_blocked_ != std::numeric_limits<std::int64_t>::max();
    }

    bool is_gain() const {
        if (best_blocked_ != loads_.blocked()) return best_blocked_ < loads_.blocked();
        const auto now = static_cast<double>(loads_.value());
        return now - static_cast<double>(best_value_) > least_gain_ * now;
    }

    const Supernodes& nodes_;
    MovingLoads loads_;
    std::uint64_t targets_;
    double least_gain_;
    std::int64_t best_blocked_ = 0;
    Ticks best_value_ = 0;
    std::int32_t best_node_ = 0;
    int best_device_ = 0;
};

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

std::span<const std::uint8_t> row_of(const Starts& starts, std::int64_t row, const Supernodes& nodes) {
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
        std::vector<std::uint8_t> own;
        if (i >= starts.rows) own = (i - starts.rows) % 2 == 0 ? balanced_start(nodes, rng) : random_start(nodes, rng);
        const auto start = i < starts.rows ? row_of(starts, i, nodes) : std::span<const std::uint8_t>(own);
        chains[i] = Chain(nodes, heats[i % heats.size()], rng).run(start, moves, stopper);
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
                   .devices = std::vector<std::uint8_t>(starts.rows * nodes.count()),
                   .ticks = std::vector<Ticks>(starts.rows),
                   .moves = std::vector<std::int64_t>(starts.rows)};
    Stopper stopper(limits.seconds, workers);
    run_items(starts.rows, workers, stopper, [&](std::int64_t i) {
        const std::int64_t moves = limits.moves * (i + 1) / starts.rows - limits.moves * i / starts.rows;
        const Balanced end = Descent(nodes, mask, least_gain).run(row_of(starts, i, nodes), moves, stopper);
        std::ranges::copy(end.devices, found.devices.begin() + i * nodes.count());
        found.ticks[i] = end.ticks;
        found.moves[i] = end.moves;
    });
    return found;
}

}  // namespace stead
