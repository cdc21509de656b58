#include "bounds/windows.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "bounds/heads_and_tails.h"

namespace stead {

namespace {

constexpr Wide nothing = -(static_cast<Wide>(1) << 120);
constexpr int rounds = 6;  // of prices and pairs in turn; hardly ever are more than three needed

/// Rows of `area` that stand for some operators, with their repetitions.
struct Rows {
    Rows(const Problem& problem, const WindowOptions& options, std::span<const std::int32_t> members)
        : busy(problem.devices, 1) {
        for (const std::int32_t v : members) {
            bytes.push_back(options.bytes[v]);
            for (int d = 0; d < problem.devices; ++d) {
                const Ticks own = problem.duration[static_cast<std::size_t>(v) * problem.devices + d];
                ticks.push_back(own == impossible ? impossible : own * options.repeat[v]);
            }
        }
        work = {members.size(), problem.devices, ticks, bytes, problem.memory_bytes, busy};
    }

    std::vector<Ticks> ticks;
    std::vector<std::int64_t> bytes;
    std::vector<std::uint8_t> busy;
    Work work;
};

/// Sums over all operators so far whose tail is at least b, plus b, for every b at once: the largest of them.
class TailTree {
public:
    explicit TailTree(std::size_t count) {
        while (leaves_ < count) leaves_ *= 2;
        sum_.assign(2 * leaves_, 0);
        best_.assign(2 * leaves_, nothing);
    }

    /// Adds a weight at the slot of a tail; slots ascend with tails.
    void add(std::size_t slot, Wide tail, Wide weight) {
        std::size_t i = leaves_ + slot;
        sum_[i] += weight;
        best_[i] = tail + sum_[i];
        for (i /= 2; i > 0; i /= 2) {
            sum_[i] = sum_[2 * i] + sum_[2 * i + 1];
            best_[i] = std::max(best_[2 * i] == nothing ? nothing : best_[2 * i] + sum_[2 * i + 1], best_[2 * i + 1]);
        }
    }

    Wide best() const { return best_[1]; }

    std::size_t best_slot() const {
        std::size_t i = 1;
        while (i < leaves_) i = 2 * i + (best_[i] == best_[2 * i + 1] ? 1 : 0);
        return i - leaves_;
    }

private:
    std::size_t leaves_ = 1;
    std::vector<Wide> sum_, best_;
};

class Windows {
public:
    Windows(const Problem& problem, const WindowOptions& options, Watch& watch)
        : watch_(watch), problem_(problem), options_(options), everyone_(problem.operators), all_(make_all()) {}

    WindowBounds run() {
        const Proof spread = area(all_.work, false, &watch_);
        find_ends(spread.prices);
        if (watch_.stopped()) return found_;
        sort_tails();
        improve(spread.prices, false);
        if (watch_.stopped()) return found_;
        const std::int64_t least_room = *std::min_element(problem_.memory_bytes.begin(), problem_.memory_bytes.end());
        if (least_room < total_bytes()) improve(area(all_.work, true, &watch_).prices, true);
        return found_;
    }

private:
    Rows make_all() {
        std::iota(everyone_.begin(), everyone_.end(), 0);
        return Rows(problem_, options_, everyone_);
    }

    Wide total_bytes() const {
        return std::accumulate(options_.bytes.begin(), options_.bytes.end(), static_cast<Wide>(0));
    }

    /// Heads and tails of operators, and the longest way through one of them.
    void find_ends(const Prices& prices) {
        const Precedence forward(problem_, false), backward(problem_, true);
        const std::vector<Ticks> before = earliest_starts(forward, prices, options_.reach, watch_);
        const std::vector<Ticks> after = earliest_starts(backward, prices, options_.reach, watch_);
        head_.assign(problem_.operators, never);
        tail_.assign(problem_.operators, never);
        for (std::int32_t v = 0; v < problem_.operators; ++v) {
            const std::size_t here = static_cast<std::size_t>(v) * problem_.devices;
            const std::size_t there = static_cast<std::size_t>(backward.node(v)) * problem_.devices;
            Ticks through = never;
            for (int d = 0; d < problem_.devices; ++d) {
                const Ticks own = problem_.duration[here + d];
                if (own == impossible || before[here + d] == never || after[there + d] == never) continue;
                head_[v] = std::min(head_[v], before[here + d]);
                tail_[v] = std::min(tail_[v], after[there + d]);
                through = std::min(through, before[here + d] + own + after[there + d]);
            }
            if (through != never) found_.path = std::max(found_.path, through);
        }
    }

    void sort_tails() {
        std::erase_if(everyone_, [&](std::int32_t v) { return head_[v] == never; });  // cannot run at all
        by_head_ = everyone_;
        std::stable_sort(by_head_.begin(), by_head_.end(), [&](auto a, auto b) { return head_[a] > head_[b]; });
        slots_.clear();
        for (const std::int32_t v : everyone_) slots_.push_back(tail_[v]);
        std::sort(slots_.begin(), slots_.end());
        slots_.erase(std::unique(slots_.begin(), slots_.end()), slots_.end());
        slot_.resize(problem_.operators);
        for (const std::int32_t v : everyone_)
            slot_[v] = std::lower_bound(slots_.begin(), slots_.end(), tail_[v]) - slots_.begin();
    }

    /// Sweeps with these prices, then with better ones for the window found, while that helps.
    void improve(Prices prices, bool with_memory) {
        Ticks last = -1;
        for (int round = 0; round < rounds; ++round) {
            const WindowBounds one = sweep(prices);
            if (one.window > found_.window)
                found_.window = one.window, found_.head = one.head, found_.tail = one.tail;
            watch_.poll();
            if (one.window <= last || watch_.stopped()) return;
            last = one.window;
            std::vector<std::int32_t> members;
            for (const std::int32_t v : everyone_)
                if (with_memory || (head_[v] >= one.head && tail_[v] >= one.tail)) members.push_back(v);
            Rows rows(problem_, options_, members);
            for (std::size_t row = 0; row < members.size(); ++row)
                if (head_[members[row]] < one.head || tail_[members[row]] < one.tail)
                    for (int d = 0; d < problem_.devices; ++d) {  // outside: it takes memory but no time
                        Ticks& ticks = rows.ticks[row * problem_.devices + d];
                        if (ticks != impossible) ticks = 0;
                    }
            prices = area(rows.work, with_memory, &watch_).prices;
        }
    }

    /// The best pair for given prices: heads fall, and a tree keeps the best tail.
    WindowBounds sweep(const Prices& prices) const {
        WindowBounds best;
        if (by_head_.empty() || prices.whole <= 0) return best;
        TailTree tree(slots_.size());
        Wide fixed = 0, most = nothing;
        for (int d = 0; d < problem_.devices; ++d)
            fixed -= static_cast<Wide>(prices.memory[d]) * problem_.memory_bytes[d];
        for (const std::int32_t v : everyone_) fixed += idle_price(v, prices);
        for (const std::int32_t v : by_head_) {
            const Wide weight = busy_price(v, prices) - idle_price(v, prices);
            tree.add(slot_[v], static_cast<Wide>(tail_[v]) * prices.whole, weight);
            const Wide value = static_cast<Wide>(head_[v]) * prices.whole + tree.best();
            if (value > most) most = value, best.head = head_[v], best.tail = slots_[tree.best_slot()];
        }
        const Wide value = std::max<Wide>(0, most + fixed);
        best.window = static_cast<Ticks>(std::min<Wide>((value + prices.whole - 1) / prices.whole, never / 2));
        return best;
    }

    template <class Price>
    Wide least(std::int32_t v, Price price) const {
        Wide found = -1;
        for (int d = 0; d < problem_.devices; ++d) {
            const Ticks own = problem_.duration[static_cast<std::size_t>(v) * problem_.devices + d];
            if (own == impossible) continue;
            const Wide one = price(own, d);
            found = found < 0 ? one : std::min(found, one);
        }
        return std::max<Wide>(found, 0);
    }

    Wide busy_price(std::int32_t v, const Prices& prices) const {
        return least(v, [&](Ticks own, int d) {
            return static_cast<Wide>(prices.time[d]) * own * options_.repeat[v] +
                   static_cast<Wide>(prices.memory[d]) * options_.bytes[v];
        });
    }

    Wide idle_price(std::int32_t v, const Prices& prices) const {
        if (options_.bytes[v] == 0) return 0;
        return least(v, [&](Ticks, int d) { return static_cast<Wide>(prices.memory[d]) * options_.bytes[v]; });
    }

    Watch& watch_;
    const Problem& problem_;
    const WindowOptions& options_;
    std::vector<std::int32_t> everyone_, by_head_;
    Rows all_;
    std::vector<Ticks> head_, tail_, slots_;  // [operator], [operator], [slot] ascending
    std::vector<std::size_t> slot_;           // [operator]; of its tail
    WindowBounds found_;
};

}  // namespace

WindowBounds window_bounds(const Problem& problem, const WindowOptions& options, Watch& watch) {
    return Windows(problem, options, watch).run();
}

}  // namespace stead
