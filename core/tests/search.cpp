// Tests of searches; numbers are worked out by hand.
#include <cstdint>
#include <vector>

#include "search/balance/balance.h"
#include "search/balance/supernodes.h"
#include "search/local_search.h"
#include "tests/draft.h"
#include "tests/expect.h"

using namespace stead;

namespace {

const Order units{0, 1, 2, 3, 4};
const Row together(5, 0);

void a_local_search_parts_the_towers() {
    const Problem problem = two_towers().build();
    for (const int threads : {1, 3})
        for (const Flags& sends : {Flags{0}, Flags{1}}) {
            const SearchStarts starts{.rows = 1, .devices = together, .orders = units, .sends = sends};
            const ResidentLimits limits{std::vector<std::int64_t>(5, 0), problem.memory_bytes};
            const SearchOptions options{.budget = 20'000, .seconds = 600};
            const SearchResult found = search(problem, units, starts, limits, options, {threads, {}});
            CHECK(found.pool.front().ticks == ticks(7.5) && found.trail.back().ticks == ticks(7.5));
        }
}

void annealing_balances_the_towers() {
    // l1, l2 and the head on one device: 2 + 2 + 1, and r2's tensor in 2.5 us.
    const Problem problem = two_towers().build();
    for (const LoadKind load : {LoadKind::sum, LoadKind::overlap, LoadKind::duplex, LoadKind::fwbw}) {
        const Supernodes nodes(problem, units, load, {});
        const Balanced one = balance(nodes, {together.data(), 1}, 4, 0, {4000, inf}, {1, {}});
        const Balanced many = balance(nodes, {together.data(), 1}, 4, 0, {4000, inf}, {3, {}});
        CHECK(one.devices == many.devices && one.ticks == many.ticks && one.moves == 4000 && many.moves == 4000);
        if (load == LoadKind::sum) CHECK(one.ticks == ticks(7.5) && one.trail.front().ticks == ticks(9));
    }
}

void a_weight_of_two_users_is_held_once() {
    Draft draft = Draft(2, "link", 1, 1).op(1).op(1).weight(10, {0, 1});
    draft.memory = {10, 0};
    const Problem problem = draft.build();
    const Supernodes nodes(problem, Order{0, 1}, LoadKind::sum, {});
    const Row apart{0, 1};
    const Balanced found = balance(nodes, {apart.data(), 1}, 0, 0, {1000, inf}, {1, {}});
    CHECK((found.devices == Row{0, 0}) && found.ticks == ticks(2));
}

void a_descent_makes_the_best_single_moves() {
    // From 10 us, 4 moves away to leave 6; 1 more ends at 5.
    const Problem problem = Draft(2, "link", 1, 1).op(1).op(2).op(3).op(4).build();
    const Supernodes nodes(problem, Order{0, 1, 2, 3}, LoadKind::sum, {});
    const Descents found = descend(nodes, {together.data(), 1}, Flags{1, 1}, 0.0, {1000, inf}, {1, {}});
    CHECK((found.devices == Row{1, 0, 0, 1}) && found.ticks[0] == ticks(5));
}

}  // namespace

void test_search() {
    a_local_search_parts_the_towers();
    annealing_balances_the_towers();
    a_weight_of_two_users_is_held_once();
    a_descent_makes_the_best_single_moves();
}
