#include "search/local_search.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "base/fail.h"
#include "base/placement.h"
#include "sim/order_checks.h"

namespace stead {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t unlimited_work = std::int64_t{1} << 61;
constexpr double stalled = 5e-4;  // gain of a round, relative, below which climbing has come to its end
constexpr auto wait_between_looks = std::chrono::milliseconds(5);

void check_units(const Problem& problem, std::span<const std::int32_t> unit_of) {
    if (std::ssize(unit_of) != problem.operators)
        fail("unit_of needs ", problem.operators, " entries, got ", unit_of.size());
    std::vector<std::uint8_t> used(problem.operators);
    std::int32_t units = 0;
    for (std::int32_t v = 0; v < problem.operators; ++v) {
        if (unit_of[v] < 0 || unit_of[v] >= problem.operators)
            fail("unit_of must lie in 0..", problem.operators - 1, ", but entry ", v, " is ", unit_of[v]);
        used[unit_of[v]] = 1;
        units = std::max(units, unit_of[v] + 1);
    }
    for (std::int32_t unit = 0; unit < units; ++unit)
        if (!used[unit]) fail("units must be numbered from 0 without gaps, but unit ", unit, " is empty");
}

void check_start(const Problem& problem, std::span<const std::int32_t> unit_of, const DeviceIndex* devices,
                 std::span<const std::int32_t> order, OrderCheck& check) {
    check_placement(problem, devices);
    check.topological(order);
    const Obstacle obstacle = find_obstacle(problem, devices);
    if (obstacle.status == Status::unsupported)
        fail("operator ", obstacle.op, " cannot run on device ", obstacle.device);
    if (obstacle.status == Status::unreachable)
        fail("tensor ", obstacle.tensor, " has no way from device ", obstacle.source, " to device ", obstacle.target);
    std::vector<std::int32_t> device_of(problem.operators, -1);
    for (std::int32_t v = 0; v < problem.operators; ++v) {
        std::int32_t& d = device_of[unit_of[v]];
        if (d >= 0 && d != devices[v]) fail("unit ", unit_of[v], " is on devices ", d, " and ", +devices[v]);
        d = devices[v];
    }
}

void check_starts(const Problem& problem, std::span<const std::int32_t> unit_of, const SearchStarts& starts) {
    if (starts.rows < 1) fail("a search needs at least 1 start");
    if (std::ssize(starts.sends) != starts.rows)
        fail("start_sends needs ", starts.rows, " entries, got ", starts.sends.size());
    for (const std::uint8_t sends : starts.sends)
        if (sends > static_cast<std::uint8_t>(Sends::by_reader))
            fail("start_sends must lie in 0..1, got ", +sends);
        else if (sends)
            check_by_reader(problem);
    OrderCheck check(problem);
    const std::int64_t n = problem.operators;
    for (std::int64_t s = 0; s < starts.rows; ++s) try {
            check_start(problem, unit_of, starts.devices.data() + s * n, starts.orders.subspan(s * n, n), check);
        } catch (const std::invalid_argument& error) {
            fail("start ", s, ": ", error.what());
        }
}

void check_options(const Problem& problem, const ResidentLimits& limits, const SearchOptions& options) {
    if (options.budget < 1) fail("budget must be at least 1, got ", options.budget);
    if (!(options.seconds >= 0.0)) fail("seconds must be at least 0, got ", options.seconds);
    if (!(options.warmth >= 0.0) || options.warmth > 1.0) fail("warmth must lie in 0..1, got ", options.warmth);
    for (const auto& [name, value, most] :
         {std::tuple{"streams", options.streams, 1024}, {"rounds", options.rounds, 1024}, {"pool", options.pool, 1024}})
        if (value < 1 || value > most) fail(name, " must lie in 1..", most, ", got ", value);
    if (std::ssize(limits.held_bytes) != problem.operators || std::ssize(limits.room_bytes) != problem.devices)
        fail("held_bytes and room_bytes need ", problem.operators, " and ", problem.devices, " entries, got ",
             limits.held_bytes.size(), " and ", limits.room_bytes.size());
    for (const std::int64_t bytes : limits.held_bytes)
        if (bytes < 0 || bytes > std::int64_t{1} << 60) fail("held_bytes must lie in 0..2**60, got ", bytes);
}

/// Does a number of tasks on threads; the calling thread works too and asks whether to stop.
class Crew {
public:
    Crew(const Workers& workers, std::int64_t tasks)
        : interrupted_(workers.interrupted), threads_(thread_count(workers, tasks)) {}

    std::int64_t threads() const { return threads_; }

    /// Whether the work is to be given up; may be asked from any thread.
    bool stopped() {
        if (!stopped_ && std::this_thread::get_id() == caller_ && interrupted_ && interrupted_()) stopped_ = true;
        return stopped_;
    }

    /// Does all tasks unless it is stopped; whether it did.

    bool run(std::int64_t tasks, const std::function<void(std::int64_t)>& task) {
        std::atomic<std::int64_t> next = 0, busy = threads_ - 1;
        const auto work = [&] {
            try {
                for (std::int64_t i; !stopped_ && (i = next.fetch_add(1)) < tasks;) task(i);
            } catch (...) {
                const std::lock_guard lock(mutex_);
                error_ = std::current_exception();
                stopped_ = true;
            }
        };
        std::vector<std::jthread> others;
        for (std::int64_t i = 1; i < threads_; ++i)
            others.emplace_back([&] {
                work();
                --busy;
            });
        work();
        while (busy > 0 && !stopped()) std::this_thread::sleep_for(wait_between_looks);
        others.clear();
        if (error_) std::rethrow_exception(error_);
        return !stopped_;
    }

private:
    std::function<bool()> interrupted_;
    const std::int64_t threads_;
    const std::thread::id caller_ = std::this_thread::get_id();
    std::atomic<bool> stopped_ = false;
    std::mutex mutex_;
    std::exception_ptr error_;
};

/// The best distinct states.
class Pool {
public:
    explicit Pool(int size) : size_(size) {}

    void offer(const SearchState& state) {
        const auto same = [&](const SearchState& other) {
            return other.ticks == state.ticks && other.sends == state.sends && other.devices == state.devices;
        };
        if (std::ranges::any_of(states_, same)) return;
        const auto place = std::ranges::find_if(
            states_, [&](const SearchState& other) { return state.better_than(other); });
        if (place == states_.end() && std::ssize(states_) >= size_) return;
        states_.insert(place, state);
        if (std::ssize(states_) > size_) states_.pop_back();
    }

    std::vector<SearchState> take() { return std::move(states_); }

private:
    std::int64_t size_;
    std::vector<SearchState> states_;
};

class LocalSearch {
public:
    LocalSearch(const Problem& problem, std::span<const std::int32_t> unit_of, const SearchStarts& starts,
                ResidentLimits limits, const SearchOptions& options, const Workers& workers)
        : options_(options), starts_(starts), operators_(problem.operators),
          items_(std::max<std::int64_t>(starts.rows, options.streams)), tables_(problem, unit_of, std::move(limits)),
          crew_(workers, items_), pool_(options.pool), climbers_(items_), alive_(items_), before_(items_, 0) {
        std::iota(alive_.begin(), alive_.end(), 0);
    }

    SearchResult run() {
        begin_ = Clock::now();
        if (!crew_.run(items_, [&](std::int64_t i) { start(i); })) throw Interrupted{};  // there is nothing to keep yet
        rank();
        for (int round = 0; round < options_.rounds; ++round) {
            const double rest = seconds_left();
            if (rest <= 0.0 || work() >= options_.budget) break;
            const double share = rest / (options_.rounds - round) / per_thread();
            const std::int64_t left = (options_.budget - work()) / (options_.rounds - round) / std::ssize(alive_);
            const bool goes_on =
                crew_.run(std::ssize(alive_), [&](std::int64_t i) { climb(alive_[i], round, left, share); });
            rank();
            note_round();
            if (!goes_on || (round + 1 < options_.rounds && may_drop(round) && !exchange())) break;
        }
        return result();
    }

private:
    double seconds_left() const {
        return options_.seconds - std::chrono::duration<double>(Clock::now() - begin_).count();
    }

    /// Whether only the clock ends the search: then each round has its share of the time.
    bool timed() const { return options_.budget >= unlimited_work; }

    double per_thread() const {
        return std::ceil(static_cast<double>(alive_.size()) / static_cast<double>(crew_.threads()));
    }

    std::int64_t work() const {
        return std::transform_reduce(climbers_.begin(), climbers_.end(), std::int64_t{0}, std::plus<>(),
                                     [](const auto& climber) { return climber->work(); });
    }

    void start(std::int64_t i) {
        climbers_[i] = std::make_unique<Climber>(tables_, options_.seed, i);
        const std::int64_t s = i % starts_.rows, row = s * operators_;
        climbers_[i]->load(starts_.devices.data() + row, starts_.orders.data() + row, Sends{starts_.sends[s]});
    }

    void climb(std::int64_t item, int round, std::int64_t work, double share) {
        const double left = std::max(0.0, seconds_left());
        // Annealing starts colder from round to round.
        const bool anneals = options_.climbs ? has_stalled(item) : (item + round) % 2 == 1;
        before_[item] = climbers_[item]->best().ticks;
        climbers_[item]->run({.work = std::max<std::int64_t>(1, work),
                              .seconds = timed() ? std::min(share, left) : left,
                              .timed = timed(),
                              .warmth = anneals ? std::ldexp(options_.warmth, -(round / 2)) : 0.0,
                              .stopped = [this] { return crew_.stopped(); }});
    }

    bool has_stalled(std::int64_t item) const {
        const Ticks now = climbers_[item]->best().ticks;
        return before_[item] > 0 && static_cast<double>(before_[item] - now) < stalled * static_cast<double>(now);
    }

    /// The items that still run, best first. Where they climb, what falls fast counts as if it fell twice as far
    /// again: starts that begin behind others often end before them.
    void rank() {
        const auto value = [&](std::int64_t item) {
            const SearchState& best = climbers_[item]->best();
            const Ticks gain = !options_.climbs || before_[item] == 0 ? 0 : before_[item] - best.ticks;
            return std::pair(best.overflow, best.ticks - 2 * gain);
        };
        std::ranges::stable_sort(alive_, std::less<>(), value);
    }

    /// Whether it is known by now which items are worse: where they climb it takes some time to tell.
    bool may_drop(int round) const { return !options_.climbs || options_.rounds < 4 || round % 2 == 1; }

    /// The worse half is given up or, when only `streams` are left, goes on from the states of the better half.
    bool exchange() {
        const std::int64_t count = std::ssize(alive_), better = (count + 1) / 2;
        if (count > options_.streams) {
            alive_.resize(std::max<std::int64_t>(better, options_.streams));
            return true;
        }
        return crew_.run(count - better, [&](std::int64_t i) {
            const SearchState& state = climbers_[alive_[i]]->best();
            climbers_[alive_[better + i]]->load(state.devices.data(), state.order.data(), state.sends);
        });
    }

    void note_round() {
        const auto best = std::ranges::min_element(alive_, [&](std::int64_t a, std::int64_t b) {
            return climbers_[a]->best().better_than(climbers_[b]->best());
        });
        result_.trail.push_back({work(), climbers_[*best]->best().ticks});
    }

    SearchResult result() {
        for (const auto& climber : climbers_) pool_.offer(climber->best());  // one each, so that they differ
        result_.pool = pool_.take();
        result_.work = work();
        result_.kinds.resize(move_count);
        for (const auto& climber : climbers_) {
            result_.moves += climber->moves();
            for (int m = 0; m < move_count; ++m) {
                result_.kinds[m].name = move_names[m];
                result_.kinds[m].add(climber->tallies()[m]);
            }
        }
        return std::move(result_);
    }

    const SearchOptions& options_;
    const SearchStarts& starts_;
    Clock::time_point begin_;
    const std::int64_t operators_;
    const std::int64_t items_;
    SearchTables tables_;
    Crew crew_;
    Pool pool_;
    std::vector<std::unique_ptr<Climber>> climbers_;
    std::vector<std::int64_t> alive_;  // items that still run
    std::vector<Ticks> before_;        // [item]; its best before the last round
    SearchResult result_;
};

}  // namespace

SearchResult search(const Problem& problem, std::span<const std::int32_t> unit_of, const SearchStarts& starts,
                    ResidentLimits limits, const SearchOptions& options, const Workers& workers) {
    check_units(problem, unit_of);
    check_options(problem, limits, options);
    check_starts(problem, unit_of, starts);
    return LocalSearch(problem, unit_of, starts, std::move(limits), options, workers).run();
}

}  // namespace stead
