// Tests of lower bounds; numbers are worked out by hand.
#include <cstdint>
#include <limits>
#include <vector>

#include "base/watch.h"
#include "bounds/block_chain.h"
#include "bounds/critical_path.h"
#include "bounds/cut_path.h"
#include "bounds/windows.h"
#include "tests/draft.h"
#include "tests/expect.h"

using namespace stead;

namespace {

void a_path_is_as_long_as_its_operators() {
    const Problem problem = two_towers().build();
    CHECK((earliest_finish(problem, Crossing::link) ==
           std::vector<Ticks>{ticks(2), ticks(2), ticks(4), ticks(4), ticks(5)}));
}

void a_path_that_no_device_holds_changes_device() {
    Draft draft = two_towers().weight(10, {0}).weight(10, {2});
    draft.memory = {10, 10};
    const Problem problem = draft.build();
    CHECK((heaviest_path(problem, std::vector<double>{2, 1, 2, 1, 1}) == Order{0, 2, 4}));
    CHECK(least_run_ticks(problem, Order{0, 2, 4}, Crossing::link) == ticks(2 + 2.5 + 2 + 1));
}

void towers_run_side_by_side_and_one_of_them_has_to_cross() {
    const Problem problem = two_towers().build();
    const std::vector<std::int64_t> bytes(5, 0);
    const std::vector<std::int32_t> once(5, 1);
    Watch watch(inf, {1, {}});
    CHECK(window_bounds(problem, {bytes, once, 0}, watch).path == ticks(5));
    CHECK(window_bounds(problem, {bytes, once, 8}, watch).path == ticks(7.5));
}

void a_block_is_searched_until_its_least_is_known() {
    const Problem problem = two_towers().build();
    const Order path{0, 2, 4}, alone{0, 1, 2, 3, 4}, together{0, 1, 0, 1, 1};
    const auto bound = [&](const Order& units, int most, std::int64_t steps) {
        Watch watch(inf, {1, {}});
        return block_chain_bound(problem, {path, units, most, 0, steps}, watch);
    };
    CHECK(bound(alone, 64, 0) == ticks(5));        // the path alone
    CHECK(bound(alone, 64, 10'000) == ticks(7.5));  // each tower on its device, one of them crosses
    CHECK(bound(alone, 1, 10'000) == ticks(5));     // cut everywhere: the other tower is lost
    CHECK(bound(together, 64, 10'000) == ticks(7.5));
    CHECK(bound(Order(5, 0), 64, 10'000) == ticks(9));  // all on one device
}

}  // namespace

void test_bounds() {
    a_path_is_as_long_as_its_operators();
    a_path_that_no_device_holds_changes_device();
    towers_run_side_by_side_and_one_of_them_has_to_cross();
    a_block_is_searched_until_its_least_is_known();
}
