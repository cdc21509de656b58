#include "search/climber.h"

#include <algorithm>

namespace stead {
namespace {

constexpr std::int32_t whole_at_once = 6000;  // larger graphs are also searched window by window
constexpr std::int32_t window_size = 1024;
constexpr std::int32_t whole_first = 20'000;  // larger graphs are searched window by window in the beginning
constexpr std::int64_t window_effort = 60;    // operators decoded per operator in a window
constexpr std::int64_t whole_effort = 50;     // operators decoded per operator between two sweeps
constexpr int relists = 4;                    // tries to sort all when all is open: cheap there, and seldom drawn
constexpr std::int64_t look_interval = 20'000;
constexpr int share_interval = 128;
constexpr double memory_of_gains = 0.98;
constexpr double least_share = 0.4;  // of all moves, spread evenly
constexpr double large_least_share = 0.15;  // the same on graphs searched window by window: there moves cost more
constexpr double usual_cost = 100.0;  // of a move, in operators, before any was tried
constexpr double neutral_kept = 0.3;
constexpr double patience_with_many = 0.03;  // of the makespan: how far a move of many operators may fall behind

/// How often a kind of move is tried that gains nothing, in relation to the others.
double floor_of(int move) { return move == static_cast<int>(Move::relist) ? 0.02 : 1.0; }

}  // namespace

Climber::Climber(const SearchTables& tables, std::uint64_t seed, std::uint64_t stream)
    : tables_(tables), rng_(seed, stream), decoder_(tables.problem, tables.decode),
      resident_(tables.problem, tables.weights, tables.limits), stager_(tables, decoder_, resident_, rng_) {
    gain_.fill(0.0);
    cost_.fill(1.0);
    tries_.fill(0.0);
    set_shares();
}

void Climber::load(const DeviceIndex* devices, const std::int32_t* order, Sends sends) {
    decoder_.load(devices, order, sends);
    resident_.load(devices);
    overflow_ = resident_.overflow();
    remember();
}

void Climber::remember() {
    const bool better = overflow_ != best_.overflow ? overflow_ < best_.overflow : decoder_.makespan() < best_.ticks;
    if (!better && best_.ticks != never) return;
    best_.devices = decoder_.placement();
    best_.order = decoder_.order();
    best_.sends = decoder_.sends();
    best_.overflow = overflow_;
    best_.ticks = decoder_.makespan();
}

void Climber::run(const Round& round) {
    round_ = round;
    round_begin_ = work();
    round_end_ = round_begin_ + round.work;
    clock_begin_ = Clock::now();
    next_look_ = round_begin_;
    stopped_ = false;
    if (overflow_ != best_.overflow || decoder_.makespan() != best_.ticks) restart();
    temperature_ = round.warmth * static_cast<double>(decoder_.makespan());
    if (tables_.problem.operators == 0) return;
    if (tables_.problem.operators <= whole_at_once) {
        decoder_.open(0, tables_.problem.operators);
        search(round_end_);
    } else {
        while (!over(round_end_)) sweep(round_end_);
    }
}

/// Goes back to the best state.
void Climber::restart() {
    decoder_.load(best_.devices.data(), best_.order.data(), best_.sends);
    resident_.load(best_.devices.data());
    overflow_ = best_.overflow;
}

/// Searches one window, or all at once for a while when all windows have had their turn. The largest graphs begin with
/// windows: there keeping a change costs too much as long as many are kept.
void Climber::sweep(std::int64_t end) {
    const std::int32_t n = tables_.problem.operators;
    if (next_window_ >= n || (next_window_ < 0 && n <= whole_first)) {
        next_window_ = 0;
        decoder_.open(0, n);
        for (int i = 0; i < relists && !over(end); ++i) step(Move::relist);
        return search(std::min(end, work() + whole_effort * n));
    }
    next_window_ = std::max(0, next_window_);
    decoder_.open(next_window_, std::min(n, next_window_ + window_size));
    search(std::min(end, work() + window_effort * window_size));
    next_window_ += window_size / 2;
}

void Climber::search(std::int64_t end) {
    while (!over(end)) step(choose());
}

bool Climber::over(std::int64_t end) {
    if (work() >= next_look_) {
        next_look_ = work() + look_interval;
        const double seconds = std::chrono::duration<double>(Clock::now() - clock_begin_).count();
        stopped_ = stopped_ || seconds >= round_.seconds || (round_.stopped && round_.stopped());
        // The clock may end a round but not steer it, unless there is no other limit.
        const auto done = static_cast<double>(work() - round_begin_) / static_cast<double>(round_.work);
        const double spent = round_.timed ? seconds / round_.seconds : done;
        const double left = 1.0 - std::min(1.0, spent);
        temperature_ = round_.warmth * static_cast<double>(best_.ticks) * (0.01 + left * left * left);
    }
    return stopped_ || work() >= end;
}

Ticks Climber::threshold() {
    if (round_.warmth <= 0.0) return decoder_.makespan();
    return decoder_.makespan() + static_cast<Ticks>(temperature_ * rng_.exponential());
}

/// How far a move may fall behind before it is given up. What one operator delays is seldom made up for behind it; what
/// many do in one place may pay in another.
Ticks Climber::patience(Move move) const {
    const bool few = move == Move::unit || move == Move::swap || move == Move::shift;
    return few ? 0 : static_cast<Ticks>(patience_with_many * static_cast<double>(decoder_.makespan()));
}

void Climber::step(Move move) {
    if (move == Move::relist && decoder_.last() - decoder_.first() < tables_.problem.operators) move = Move::resort;
    const std::int64_t before = work();
    ++moves_;
    if (!stager_.stage(move)) return reward(move, 0, work() - before + 8);
    const std::int64_t overflow = resident_.overflow();
    const Ticks now = decoder_.makespan();
    if (overflow > overflow_) {
        stager_.drop();
        return reward(move, 0, work() - before + 8);
    }
    const Ticks ticks = overflow < overflow_ ? decoder_.evaluate(never) : decoder_.evaluate(threshold(), patience(move));
    const bool keeps = ticks != never && (ticks != now || overflow < overflow_ || chance(rng_, neutral_kept));
    if (!keeps) {
        stager_.drop();
        return reward(move, 0, work() - before);
    }
    stager_.keep();
    overflow_ = overflow;
    remember();
    reward(move, std::max<Ticks>(0, now - ticks), work() - before, true);
}

Move Climber::choose() {
    double pick = uniform(rng_);
    for (int i = 0; i < move_count; ++i)
        if ((pick -= share_[i]) < 0.0) return static_cast<Move>(i);
    return Move::unit;
}

/// Remembers what a move gained and cost.
void Climber::reward(Move move, Ticks gain, std::int64_t cost, bool kept) {
    const int i = static_cast<int>(move);
    const double share = static_cast<double>(gain) / static_cast<double>(std::max<Ticks>(1, best_.ticks));
    tallies_[i].add({.tried = 1, .kept = kept, .work = cost, .gain = share});
    gain_[i] += share;
    cost_[i] += static_cast<double>(cost);
    tries_[i] += 1.0;
    if (++until_shares_ < share_interval) return;
    until_shares_ = 0;
    set_shares();
    for (double& one : gain_) one *= memory_of_gains;
    for (double& one : cost_) one = std::max(1.0, one * memory_of_gains);
    for (double& one : tries_) one *= memory_of_gains;
}

/// Gives each kind of move its share of the work by gain per cost, and a least one.
void Climber::set_shares() {
    const double least = tables_.problem.operators <= whole_at_once ? least_share : large_least_share;
    double rates = 0.0, floors = 0.0, all = 0.0;
    for (int m = 0; m < move_count; ++m) {
        rates += gain_[m] / cost_[m];
        floors += floor_of(m);
    }
    for (int m = 0; m < move_count; ++m) {
        const double floor = floor_of(m) / floors;
        const double work = rates > 0.0 ? least * floor + (1.0 - least) * gain_[m] / cost_[m] / rates : floor;
        share_[m] = work * (1.0 + tries_[m]) / (usual_cost + cost_[m]);  // of moves, which cost more or less
        all += share_[m];
    }
    for (double& one : share_) one /= all;
}

}  // namespace stead
