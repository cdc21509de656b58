// Tests of constructions; numbers are worked out by hand.
#include <cstdint>
#include <vector>

#include "build/list_schedule.h"
#include "build/list_tables.h"
#include "build/spill.h"
#include "tests/draft.h"
#include "tests/expect.h"

using namespace stead;

namespace {

void every_rule_takes_a_tower_per_device() {
    const Problem problem = two_towers().build();
    const ListTables tables(problem, Order{0, 1, 2, 3, 4});
    const std::vector<ListVariant> variants{{ListRule::heft}, {ListRule::peft}, {ListRule::etf}, {ListRule::sct},
                                            {ListRule::dfs_sticky}};
    for (const int threads : {1, 3})
        for (const ListSchedule& found : list_schedules(tables, variants, problem.memory_bytes, inf, {threads, {}})) {
            CHECK(found.ticks == ticks(7.5));
            CHECK(found.devices[0] == found.devices[2] && found.devices[1] == found.devices[3]);
        }
}

void limits_are_one_per_device() {
    const Problem problem = two_towers().build();
    const ListTables tables(problem, Order{0, 1, 2, 3, 4});
    const std::vector<ListVariant> variants{{ListRule::heft}};
    CHECK(refused([&] { list_schedules(tables, variants, std::vector<std::int64_t>{1}, inf, {1, {}}); }));
}

void an_overfull_device_gives_away_its_tail() {
    const Problem problem = Draft(2, "link", 1, 1).op(1, {{4, {1}}}).op(1, {{4, {2}}}).op(1, {{4, {}}}).build();
    const Spilled found = spill(ListTables(problem, Order{0, 1, 2}), Row{0, 0, 0}, Order{0, 1, 2},
                                std::vector<std::int64_t>{5, 0}, std::vector<std::int64_t>{0, 100});
    CHECK((found.devices == Row{0, 1, 1}) && found.moved_units == 2);
}

}  // namespace

void test_build() {
    every_rule_takes_a_tower_per_device();
    limits_are_one_per_device();
    an_overfull_device_gives_away_its_tail();
}
