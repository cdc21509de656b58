// Tests of walks; numbers are worked out by hand.
#include "build/walk.h"

#include <cstdint>
#include <vector>

#include "build/list_schedule.h"
#include "tests/draft.h"
#include "tests/expect.h"

using namespace stead;

namespace {

const Order singles{0, 1, 2, 3, 4};

std::vector<double> mixed_weights(int rules) {
    std::vector<double> weights(static_cast<std::size_t>(rules) * rule_weights);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<double>(i * 7919 % 13) / 10.0 - 0.6;
    return weights;
}

void logarithms_by_lines_meet_powers_of_two() {
    CHECK(lined_log2(1.0) == 0.0 && lined_log2(8.0) == 3.0 && lined_log2(0.25) == -2.0 && lined_log2(3.0) == 1.5);
    CHECK(folds(0.0) == 0.0 && folds(1.0) == 1.0 && folds(-5.0) == 0.0);
}

void zero_weights_are_heft() {
    const Problem problem = two_towers().build();
    const WalkTables tables(problem, singles, singles);
    const std::vector<ListVariant> list{{ListRule::heft}, {ListRule::heft, 4.0}};
    const std::vector<WalkVariant> walk{{}, {.bias = 4.0}};
    const auto wanted = list_schedules(tables.list, list, problem.memory_bytes, inf, {1, {}});
    const auto found = walks(tables, std::vector<double>(rule_weights), {}, {}, walk, problem.memory_bytes, inf, {1, {}});
    for (std::size_t i = 0; i < walk.size(); ++i) {
        CHECK(found[i].devices == wanted[i].devices && found[i].order == wanted[i].order);
        CHECK(found[i].ticks == wanted[i].ticks);
    }
    CHECK(found[0].ticks == ticks(7.5) && found[0].simulations == 1);
}

void opinions_of_zero_change_nothing_and_strong_ones_decide() {
    const Problem problem = two_towers().build();
    const WalkTables tables(problem, singles, singles);
    std::vector<double> opinions(2 * 5 * 2);
    for (int unit = 0; unit < 5; ++unit) opinions[10 + 2 * unit + 1] = 50.0;  // the second row: all on device 1
    const std::vector<WalkVariant> variants{{}, {.opinion = 0}, {.opinion = 1}};
    const std::vector<double> zero(rule_weights);
    const auto found = walks(tables, zero, opinions, {}, variants, problem.memory_bytes, inf, {1, {}});
    CHECK(found[0].devices == found[1].devices && found[0].order == found[1].order);
    CHECK(found[2].devices == Row(5, 1));
    const std::vector<WalkVariant> third{{.opinion = 2}};
    CHECK(refused([&] { walks(tables, zero, opinions, {}, third, problem.memory_bytes, inf, {1, {}}); }));
    opinions.pop_back();
    CHECK(refused([&] { walks(tables, zero, opinions, {}, variants, problem.memory_bytes, inf, {1, {}}); }));
}

void ranks_of_a_schedule_count_transfers_and_waiting() {
    const Problem problem = two_towers().build();
    using Ranks = std::vector<double>;
    const auto seconds = [](const Ranks& rank) {
        Ranks found;
        for (const double x : rank) found.push_back(x / static_cast<double>(ticks(1.0)));
        return found;
    };
    const Row apart{0, 1, 0, 1, 0}, together(5, 0);
    CHECK(seconds(placed_ranks(problem, apart)) == Ranks({5, 7.5, 3, 5.5, 1}));
    CHECK(seconds(busy_ranks(problem, apart, singles)) == Ranks({5, 7.5, 3, 5.5, 1}));  // nobody waits
    CHECK(seconds(placed_ranks(problem, together)) == Ranks({5, 5, 3, 3, 1}));
    CHECK(seconds(busy_ranks(problem, together, singles)) == Ranks({9, 7, 5, 3, 1}));  // one after another
}

void a_walk_goes_on_from_its_guide() {
    const Problem problem = two_towers().build();
    const WalkTables tables(problem, singles, singles);
    const std::vector<Guide> guides{{tables, Row(5, 1), singles}};
    CHECK(guides[0].behind(0, 0) - guides[0].behind(0, 1) == static_cast<double>(ticks(2.5)));  // its reader is on 1
    const std::vector<WalkVariant> variants{{.guide = 0}, {.guide = 0, .tail = 10.0}, {.guide = 0, .cling = 50.0}};
    const std::vector<double> zero(rule_weights);
    const auto found = walks(tables, zero, {}, guides, variants, problem.memory_bytes, inf, {1, {}});
    CHECK(found[0].ticks == ticks(7.5));  // ranks alone bind nobody
    for (std::size_t i = 1; i < variants.size(); ++i) CHECK(found[i].devices == Row(5, 1));
    const std::vector<WalkVariant> second{{.guide = 1}};
    CHECK(refused([&] { walks(tables, zero, {}, guides, second, problem.memory_bytes, inf, {1, {}}); }));
    CHECK(refused([&] { Guide(tables, Row(5, 2), singles); }));
    CHECK(refused([&] { Guide(tables, Row(5, 1), Order{0, 1, 4, 2, 3}); }));
}

void any_weights_make_a_schedule_on_any_number_of_threads() {
    const Problem problem = two_towers().build();
    const WalkTables tables(problem, singles, singles);
    std::vector<WalkVariant> variants;
    for (std::int32_t n = 0; n < 20; ++n)
        variants.push_back({.noise = 0.5, .seed = static_cast<std::uint64_t>(n), .retime = true, .rule = n % 3});
    const auto one = walks(tables, mixed_weights(3), {}, {}, variants, problem.memory_bytes, inf, {1, {}});
    const auto many = walks(tables, mixed_weights(3), {}, {}, variants, problem.memory_bytes, inf, {3, {}});
    for (std::size_t i = 0; i < variants.size(); ++i) {
        CHECK(one[i].devices == many[i].devices && one[i].order == many[i].order && one[i].ticks == many[i].ticks);
        CHECK(one[i].ticks >= ticks(7.5) && one[i].simulations == 3);
    }
}

void what_makes_no_sense_is_refused() {
    const Problem problem = two_towers().build();
    const WalkTables tables(problem, singles, singles);
    const std::vector<WalkVariant> first{{}}, second{{.rule = 1}};
    const std::vector<double> zero(rule_weights), nan(rule_weights, std::nan(""));
    const auto refuses = [&](const std::vector<double>& weights, const std::vector<WalkVariant>& variants,
                             const std::vector<std::int64_t>& limit) {
        return refused([&] { walks(tables, weights, {}, {}, variants, limit, inf, {1, {}}); });
    };
    CHECK(refuses(zero, second, problem.memory_bytes) && refuses(nan, first, problem.memory_bytes));
    CHECK(refuses({1.0}, first, problem.memory_bytes) && refuses(zero, first, {1}) && refuses(zero, first, {1, -1}));
    CHECK(refused([&] { WalkTables(problem, singles, Order{0, 1}); }));
    CHECK(refused([&] { WalkTables(problem, singles, Order{0, 1, 2, 3, 9}); }));
}

}  // namespace

void test_walk() {
    logarithms_by_lines_meet_powers_of_two();
    zero_weights_are_heft();
    opinions_of_zero_change_nothing_and_strong_ones_decide();
    ranks_of_a_schedule_count_transfers_and_waiting();
    a_walk_goes_on_from_its_guide();
    any_weights_make_a_schedule_on_any_number_of_threads();
    what_makes_no_sense_is_refused();
}
