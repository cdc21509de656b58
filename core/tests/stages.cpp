// Tests of the dynamic programs over ideals; numbers are worked out by hand.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "stages/ideals.h"
#include "stages/linear_dp.h"
#include "stages/stages.h"
#include "tests/expect.h"

using namespace stead;

namespace {

using Order = std::vector<std::int32_t>;

/// An instance in the making.
struct StagesDraft {
    explicit StagesDraft(std::vector<std::int32_t> devices) : count(std::move(devices)), memory(count.size(), 1000) {}

    /// A node and what it takes on each kind.
    StagesDraft& node(const std::vector<Ticks>& forward) {
        for (const Ticks one : forward) ticks.insert(ticks.end(), {one, std::min<Ticks>(one, 0)});
        ++nodes;
        return *this;
    }
    StagesDraft& edge(std::int32_t before, std::int32_t after) {
        order.insert(order.end(), {before, after});
        return *this;
    }
    StagesDraft& tensor(std::int32_t from, const Order& to, Ticks price) {
        source.push_back(from);
        late.push_back(0);
        readers.insert(readers.end(), to.begin(), to.end());
        reader_first.push_back(static_cast<std::int64_t>(readers.size()));
        prices.insert(prices.end(), count.size(), price);
        return *this;
    }
    StagesDraft& weight(std::int64_t bytes, const Order& by) {
        weights.push_back(bytes);
        users.insert(users.end(), by.begin(), by.end());
        user_first.push_back(static_cast<std::int64_t>(users.size()));
        return *this;
    }
    Stages build() const {
        return Stages({.nodes = nodes,
                       .kinds = static_cast<std::int64_t>(count.size()),
                       .ticks = ticks,
                       .order = order,
                       .tensor_source = source,
                       .tensor_late = late,
                       .reader_first = reader_first,
                       .readers = readers,
                       .receive_ticks = prices,
                       .send_ticks = prices,
                       .weight_bytes = weights,
                       .user_first = user_first,
                       .users = users,
                       .kind_count = count,
                       .kind_memory = memory});
    }

    std::int64_t nodes = 0;
    std::vector<std::int32_t> count;
    std::vector<std::int64_t> memory;
    std::vector<Ticks> ticks, prices;
    Order order, source, readers, users;
    std::vector<std::uint8_t> late;
    std::vector<std::int64_t> reader_first{0}, user_first{0}, weights;
};

StagePrices prices_for(const Stages& stages, LoadKind load = LoadKind::sum, int replicas = 1) {
    return {load, replicas, std::vector<double>(stages.kinds, 0.0)};
}

constexpr double forever = std::numeric_limits<double>::infinity();

IdealsRun solve(const Stages& stages, const StagePrices& prices, IdealsLimits limits = {}, int threads = 1) {
    if (limits.seconds == 0) limits.seconds = forever;
    return find_ideals(stages, prices, limits, {threads, {}});
}

void a_chain_is_cut_where_it_is_cheap() {
    // 4 -> 4 -> 4 with a dear tensor first: 4 | 8 costs 4 + 9 and 9 + 8, 8 | 4 only 8 + 1 and 1 + 4.
    StagesDraft draft({2});
    draft.node({4}).node({4}).node({4}).edge(0, 1).edge(1, 2).tensor(0, {1}, 9).tensor(1, {2}, 1);
    const Stages stages = draft.build();
    const IdealsRun run = solve(stages, prices_for(stages));
    CHECK(run.stop == Stop::none && run.split.ticks == 9 && run.bound == 9);
    CHECK((run.split.stage_of_node == Order{0, 0, 1}));
    CHECK(solve(stages, prices_for(stages, LoadKind::overlap)).split.ticks == 8);
    CHECK(solve(stages, prices_for(stages), {.cutoff = 9}).split.ticks == -1);
}

void a_kind_takes_only_what_it_can_run_and_hold() {
    StagesDraft draft({1, 1});
    draft.node({1, -1}).node({1, 5}).edge(0, 1).weight(8, {0, 1}).weight(3, {1});
    CHECK(solve(draft.build(), prices_for(draft.build())).split.ticks == 2);
    draft.memory[0] = 10;  // both need 11
    const Stages tight = draft.build();
    const IdealsRun run = solve(tight, prices_for(tight));
    CHECK(run.split.ticks == 5 && (run.split.kind_of_stage == Order{0, 1}));
    draft.memory[1] = 10;
    const Stages too_tight = draft.build();
    CHECK(solve(too_tight, prices_for(too_tight)).split.ticks == -1);
}

void orders_are_checked() {
    const Stages stages = StagesDraft({1}).node({1}).node({1}).edge(0, 1).build();
    const auto cut = [&](const Order& order) {
        return find_linear_split(stages, prices_for(stages), order, {.seconds = forever}, {1, {}}).ticks;
    };
    CHECK(cut({0, 1}) == 2);
    CHECK(refused([&] { cut({1, 0}); }) && refused([&] { cut({0}); }) && refused([&] { cut({0, 0}); }));
}

Stages random_stages(std::mt19937& random) {
    const auto upto = [&](int most) { return static_cast<int>(random() % (most + 1)); };
    const int nodes = 1 + upto(11), kinds = 1 + upto(2);
    StagesDraft draft(std::vector<std::int32_t>(kinds, 1 + upto(2)));
    for (int v = 0; v < nodes; ++v) {
        std::vector<Ticks> forward(kinds);
        for (Ticks& one : forward) one = upto(9) == 0 ? impossible : upto(50);
        draft.node(forward);
        for (int after = v + 1; after < nodes; ++after)
            if (upto(3) == 0) draft.edge(v, after);
        Order to;
        for (int reader = 0; reader < nodes; ++reader)
            if (reader != v && upto(3) == 0) to.push_back(reader);
        draft.tensor(v, to, upto(9)).weight(upto(5), {v}).weight(upto(5), to);
    }
    for (std::int64_t& bytes : draft.memory) bytes = 10 + upto(60);
    return draft.build();
}

bool same(const IdealsRun& a, const IdealsRun& b) {
    return a.split.ticks == b.split.ticks && a.split.stage_of_node == b.split.stage_of_node && a.bound == b.bound &&
           a.pairs == b.pairs && a.ideals == b.ideals;
}

void pruning_and_threads_change_no_answer() {
    std::mt19937 random(7);
    for (int round = 0; round < 60; ++round) {
        const Stages stages = random_stages(random);
        Order order(stages.nodes);
        std::iota(order.begin(), order.end(), 0);
        for (const LoadKind load : {LoadKind::sum, LoadKind::overlap, LoadKind::duplex, LoadKind::fwbw}) {
            const StagePrices prices = prices_for(stages, load, 1 + round % 3);
            const IdealsRun open = solve(stages, prices);
            CHECK(same(open, solve(stages, prices, {}, 3)));
            const Ticks linear = find_linear_split(stages, prices, order, {.seconds = forever}, {1, {}}).ticks;
            CHECK(linear == -1 || (open.split.ticks >= 0 && open.split.ticks <= linear));
            const IdealsRun limited = solve(stages, prices, {.max_pairs = 40});
            CHECK(same(limited, solve(stages, prices, {.max_pairs = 40}, 3)));
            if (open.split.ticks < 0) continue;
            CHECK(solve(stages, prices, {.cutoff = open.split.ticks + 1}).split.ticks == open.split.ticks);
            CHECK(solve(stages, prices, {.cutoff = open.split.ticks}).split.ticks == -1);
            CHECK(limited.bound <= open.split.ticks);
        }
    }
}

}  // namespace

void test_stages() {
    a_chain_is_cut_where_it_is_cheap();
    a_kind_takes_only_what_it_can_run_and_hold();
    orders_are_checked();
    pruning_and_threads_change_no_answer();
}
