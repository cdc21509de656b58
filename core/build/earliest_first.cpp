// Rules that take what can start first: ETF and SCT.
#include <algorithm>
#include <functional>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "build/builder.h"
#include "build/ranks.h"

namespace stead {

/// For each device what is ready is kept in two queues: what has arrived, by rank, and what is still on
/// its way, by arrival; so the next operator of a device is found without looking at all of them.
class EarliestFirst {
public:
    explicit EarliestFirst(Builder& builder)
        : b_(builder), problem_(builder.problem_), devices_(problem_.devices), need_(problem_.inputs),
          open_(problem_.operators, 0), done_(problem_.operators, 0), place_(problem_.operators),
          operator_at_(by_rank(builder.ranks_.of(builder.variant_.average))), favourite_(problem_.operators, -1) {
        for (std::size_t i = 0; i < operator_at_.size(); ++i) place_[operator_at_[i]] = static_cast<std::int32_t>(i);
        if (b_.variant_.rule == ListRule::sct) match_favourites();
    }

    void build() {
        for (const std::int32_t v : problem_.sources) add(v);
        while (const std::optional<Pick> pick = next()) {
            if (lacks_room(*pick)) {
                drop(pick->v, pick->d);
                continue;
            }
            run(pick->v, pick->d);
        }
    }

private:
    struct Pick {
        double key;
        std::int32_t place;
        Ticks finish;
        int d;
        std::int32_t v;
        bool operator<(const Pick& other) const {
            return std::tie(key, place, finish, d) < std::tie(other.key, other.place, other.finish, other.d);
        }
    };
    using Waiting = std::pair<Ticks, std::int32_t>;  // arrival, place in the order of ranks
    struct Queues {
        std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> coming;
        std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>> arrived;  // places
        std::int32_t last = -1;  // what the device ran last
    };

    /// Pairs (operator, favourite child): each has at most one of the other, the longest transfers first. Hanen and
    /// Munier find such pairs by a linear program, of which this is the greedy rounding.
    void match_favourites() {
        std::vector<std::pair<double, std::int64_t>> edges;  // transfer, entry of `consumer`
        std::vector<std::int32_t> tensor(problem_.consumer.size());
        for (std::int32_t t = 0; t < problem_.tensors; ++t)
            for (std::int32_t i = problem_.consumer_first[t]; i < problem_.consumer_first[t + 1]; ++i) {
                tensor[i] = t;
                edges.emplace_back(-b_.ranks_.move[t], i);
            }
        std::sort(edges.begin(), edges.end());
        std::vector<std::uint8_t> has_parent(problem_.operators, 0);
        for (const auto& [_, i] : edges) {
            const std::int32_t p = problem_.producer[tensor[i]], c = problem_.consumer[i];
            if (favourite_[p] >= 0 || has_parent[c]) continue;
            favourite_[p] = c;
            has_parent[c] = 1;
        }
        favourite_transfer_.assign(problem_.operators, 0.0);
        for (const auto& [transfer, i] : edges) {
            const std::int32_t p = problem_.producer[tensor[i]];
            if (favourite_[p] == problem_.consumer[i])
                favourite_transfer_[p] = std::max(favourite_transfer_[p], -transfer);
        }
    }

    /// Queues `v`, whose inputs are all written.
    void add(std::int32_t v) {
        const std::int32_t unit = b_.tables_.unit_of[v];
        const int fixed = b_.device_of_unit_[unit];
        for (int d = 0; d < problem_.devices; ++d) {
            if (fixed >= 0 ? d != fixed : !(b_.tables_.allowed[unit] >> d & 1)) continue;
            const Offer offer = b_.timeline_.offer(v, d);
            if (!offer.possible && fixed < 0) continue;
            devices_[d].coming.emplace(offer.ready, place_[v]);
            open_[v] |= std::uint64_t{1} << d;
        }
        if (!open_[v]) forced_.push_back(v);
    }

    void drop(std::int32_t v, int d) {
        open_[v] &= ~(std::uint64_t{1} << d);
        if (!open_[v]) forced_.push_back(v);
    }

    bool may_run(std::int32_t v, int d) const {
        const int fixed = b_.device_of_unit_[b_.tables_.unit_of[v]];
        return !done_[v] && (open_[v] >> d & 1) && (fixed < 0 || fixed == d);
    }

    /// The operator that can start first, where it can; what fits nowhere any more comes before all.
    std::optional<Pick> next() {
        while (!forced_.empty()) {
            const std::int32_t v = forced_.back();
            forced_.pop_back();
            if (!done_[v]) run(v, b_.choose(v));
        }
        std::optional<Pick> best;
        const auto consider = [&](const std::optional<Pick>& pick) {
            if (pick && (!best || *pick < *best)) best = pick;
        };
        for (int d = 0; d < problem_.devices; ++d) {
            consider(first_of(d));
            const std::int32_t child = awaited(d);
            if (child >= 0 && need_[child] == 0 && may_run(child, d))
                consider(pick(child, d, b_.timeline_.offer(child, d)));
        }
        return best;
    }

    std::optional<Pick> first_of(int d) {
        Queues& queues = devices_[d];
        while (true) {
            const Ticks end = b_.timeline_.device_end(d);
            while (!queues.coming.empty() && queues.coming.top().first <= end) {
                queues.arrived.push(queues.coming.top().second);
                queues.coming.pop();
            }
            const bool arrived = !queues.arrived.empty();
            if (!arrived && queues.coming.empty()) return std::nullopt;
            const std::int32_t v = operator_at_[arrived ? queues.arrived.top() : queues.coming.top().second];
            const Ticks known = arrived ? end : queues.coming.top().first;
            const bool usable = may_run(v, d);
            const Offer offer = usable ? b_.timeline_.offer(v, d) : Offer{};
            if (usable && offer.ready <= known) return pick(v, d, offer);
            if (arrived)
                queues.arrived.pop();
            else
                queues.coming.pop();
            // A channel has been taken by others since: the operator has to wait longer than it seemed.
            if (usable) queues.coming.emplace(offer.ready, place_[v]);
        }
    }

    /// The favourite child of what device d ran last, if it may still come there; else -1.
    std::int32_t awaited(int d) const {
        const std::int32_t last = devices_[d].last, child = last >= 0 ? favourite_[last] : -1;
        if (child < 0 || done_[child]) return -1;
        const std::int32_t unit = b_.tables_.unit_of[child];
        const int fixed = b_.device_of_unit_[unit];
        const bool may_come = fixed >= 0 ? fixed == d : b_.tables_.allowed[unit] >> d & 1;
        return may_come ? child : -1;
    }

    Pick pick(std::int32_t v, int d, const Offer& offer) const {
        double key = static_cast<double>(offer.start) + (b_.variant_.bias - 1.0) * static_cast<double>(offer.moved) +
                     b_.waste(v, d);
        const std::int32_t child = awaited(d);
        // A device waits for the favourite child as long as the child would wait for its input elsewhere.
        if (child >= 0 && child != v) key += favourite_transfer_[devices_[d].last];
        return {key, place_[v], offer.finish, d, v};
    }

    bool lacks_room(const Pick& pick) {
        const std::int32_t unit = b_.tables_.unit_of[pick.v];
        if (b_.room_.is_ample() || b_.device_of_unit_[unit] >= 0) return false;
        std::int64_t short_bytes[mask_devices];
        b_.room_.look(unit, b_.device_of_unit_, short_bytes);
        return short_bytes[pick.d] > 0;
    }

    void run(std::int32_t v, int d) {
        const std::int32_t unit = b_.tables_.unit_of[v];
        const bool opens_unit = b_.device_of_unit_[unit] < 0;
        b_.run(v, d);
        done_[v] = 1;
        devices_[d].last = v;
        if (opens_unit) bring_back(unit, d);
        for (std::int32_t t = problem_.tensor_first[v]; t < problem_.tensor_first[v + 1]; ++t)
            for (std::int32_t i = problem_.consumer_first[t]; i < problem_.consumer_first[t + 1]; ++i)
                if (--need_[problem_.consumer[i]] == 0) add(problem_.consumer[i]);
    }

    /// Members of `unit` that are ready, and that were turned away from d for lack of room, must run there now.
    void bring_back(std::int32_t unit, int d) {
        for (const std::int32_t u : b_.tables_.members[unit]) {
            // What is open nowhere has been forced already.
            if (need_[u] || done_[u] || !open_[u] || open_[u] >> d & 1) continue;
            devices_[d].coming.emplace(b_.timeline_.offer(u, d).ready, place_[u]);
            open_[u] |= std::uint64_t{1} << d;
        }
    }

    Builder& b_;
    const Problem& problem_;
    std::vector<Queues> devices_;              // [device]
    std::vector<std::int32_t> need_;           // [operator]; inputs not written yet
    std::vector<std::uint64_t> open_;          // [operator]; devices that come into question, as bits
    std::vector<std::uint8_t> done_;           // [operator]
    std::vector<std::int32_t> place_;          // [operator]; in decreasing rank
    std::vector<std::int32_t> operator_at_;    // [place]
    std::vector<std::int32_t> favourite_;      // [operator]; its favourite child, -1 for none
    std::vector<double> favourite_transfer_;   // [operator]; what the child would wait for elsewhere
    std::vector<std::int32_t> forced_;         // ready, but nowhere with room
};

void Builder::earliest_first() { EarliestFirst(*this).build(); }

}  // namespace stead
