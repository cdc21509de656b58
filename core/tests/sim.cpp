// Tests of simulation; numbers are worked out by hand, times in microseconds.
#include <algorithm>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "sim/batch.h"
#include "sim/event_queue.h"
#include "tests/draft.h"
#include "tests/expect.h"
#include "tests/simulated.h"

using namespace stead;

namespace {

bool starts_at(const Schedule& schedule, const Times& us) {
    return std::ranges::equal(schedule.run.start, us, {}, {}, ticks);
}

bool peaks_at(const Schedule& schedule, const std::vector<std::int64_t>& bytes) {
    return std::ranges::equal(schedule.peaks, bytes, {}, &Peak::bytes);
}

void policies_differ_as_worked_out() {
    const Problem problem = Draft(2, "link", 1, 1).op(5, {{1000, {1}}}).op(2).op(3).op(4, {{1000, {4}}}).op(6).build();
    const Row placement{1, 0, 0, 0, 1};
    const Schedule fifo = run(problem, placement);
    CHECK(fifo.makespan == ticks(15) && starts_at(fifo, {0, 7, 0, 3, 9}));
    const Schedule priority = run(problem, placement, Policy::priority, {2, 3, 1, 0, 4});
    CHECK(priority.makespan == ticks(12) && starts_at(priority, {0, 7, 4, 0, 6}));
    const Schedule program = run(problem, placement, Policy::program_order);
    CHECK(program.makespan == ticks(24) && starts_at(program, {0, 7, 9, 12, 18}));
}

void transfers_can_be_ordered() {
    const Problem problem = Draft(2, "link", 1, 1).op(1, {{8000, {1}}, {1000, {2}}}).op(1).op(9).build();
    const Row placement{0, 1, 1};
    CHECK(starts_at(run(problem, placement), {0, 10, 11}));
    const Schedule priority = run(problem, placement, Policy::priority, {0, 1, 2}, {1, 0});
    CHECK(priority.makespan == ticks(13) && starts_at(priority, {0, 12, 3}));
    const Order items{0, 3 + 1 * 2 + 1, 3 + 0 * 2 + 1, 2, 1};
    const Schedule listed = run(problem, placement, Policy::program_order, items, {}, true);
    CHECK(listed.makespan == ticks(13) && starts_at(listed, {0, 12, 3}));
}

void ties_go_by_index() {
    const Schedule schedule = run(Draft(1, "link", 1, 1).op(0, {{0, {2}}}).op(3).op(0).op(2).build(), {0, 0, 0, 0});
    CHECK((schedule.run.order == Order{0, 1, 2, 3}));
    CHECK(starts_at(schedule, {0, 0, 3, 3}));
}

void channels_queue_and_gaps_hold_them() {
    const Schedule booked =
        run(Draft(2, "sender", 1, 1).op(10, {{1000, {2}}}).op(0, {{1000, {3}}}).op(1).op(1).build(), {0, 0, 1, 1});
    CHECK(booked.run.transfers[0].begin == ticks(10) && booked.run.transfers[1].begin == ticks(11));
    CHECK(starts_at(booked, {0, 10, 12, 13}));
    CHECK((booked.transfer_cause == Order{caused_by_producer, 0}));
    const Schedule gap =
        run(Draft(2, "link", 25, 7.6, 25).op(10, {{7600, {1}}, {7600, {2}}}).op(1).op(1).build(), {0, 1, 1});
    CHECK(starts_at(gap, {0, 36, 62}));
}

void a_tensor_crosses_once_per_device() {
    const Schedule schedule =
        run(Draft(2, "sender", 25, 7.6).op(10, {{760000, {1, 2}}}).op(5).op(5).build(), {0, 1, 1});
    CHECK(schedule.run.transfers.size() == 1);
    CHECK(starts_at(schedule, {0, 135, 140}) && peaks_at(schedule, {760000, 760000}));
    CHECK((schedule.operator_cause == Order{no_cause, 0, -1 - 1}));
}

void memory_is_counted_block_by_block() {
    const Problem problem = memory_draft().build();
    const Schedule one = run(problem, {0, 0, 0, 0});
    CHECK(one.makespan == ticks(40) && peaks_at(one, {8100, 0}));
    const Schedule two = run(problem, {0, 1, 0, 0});
    CHECK(two.makespan == ticks(36.1) && peaks_at(two, {6000, 6400}));
    const Schedule three = run(problem, {0, 1, 1, 0});
    CHECK(three.makespan == ticks(46.2) && peaks_at(three, {5800, 7100}));
}

void too_little_memory_is_an_answer() {
    Draft draft = memory_draft();
    draft.memory = {6000, 6399};
    const Schedule schedule = run(draft.build(), {0, 1, 0, 0});
    CHECK(schedule.status == Status::memory && schedule.makespan == ticks(36.1));
    CHECK(schedule.peaks[0].over == 0 && schedule.peaks[1].over == 1 && schedule.peaks[1].at == ticks(15));
}

void spreading_a_chain_does_not_pay() {
    for (const double latency : {25.0, 0.0})
        for (const int k : {1, 2, 4, 8}) {
            Draft draft(k, "link", latency, 7.6);
            Row placement;
            for (int v = 0; v < 1000; ++v) {
                draft.op(6.7, {{76, v < 999 ? Order{v + 1} : Order{}}});
                placement.push_back(static_cast<DeviceIndex>(v % k));
            }
            CHECK(run(draft.build(), placement).makespan == ticks(k == 1 ? 6700 : latency > 0 ? 31684.99 : 6709.99));
        }
}

void a_broadcast_is_not_free() {
    for (const char* preset : {"none", "link", "pair", "receiver", "sender", "bus"}) {
        const Schedule schedule =
            run(Draft(4, preset, 25, 7.6).op(10, {{760000, {1, 2, 3, 4}}}).op(10).op(20).op(30).op(40).build(),
                {0, 1, 2, 3, 0});
        const bool shared = std::string(preset) == "sender" || std::string(preset) == "bus";
        CHECK(starts_at(schedule, shared ? Times{0, 135, 235, 335, 10} : Times{0, 135, 135, 135, 10}));
        CHECK(schedule.makespan == ticks(shared ? 365 : 165));
        for (int d = 1; d < 4; ++d) CHECK(schedule.peaks[d].bytes == 760000);
    }
}

void control_carries_nothing_and_every_input_counts() {
    const Schedule control =
        run(Draft(2, "link", 25, 7.6).op(10, {{7600000, {}, true}, {0, {1}}}).op(1).build(), {0, 1});
    CHECK(starts_at(control, {0, 35}) && control.peaks[1].bytes == 0);
    const Schedule both = run(
        Draft(2, "link", 25, 7.6).op(10, {{7600000, {1, 2}}, {760, {1, 3}}}).op(5).op(5).op(5).build(), {0, 1, 0, 1});
    CHECK(starts_at(both, {0, 1035.1, 10, 1040.1}));
    CHECK(run(Draft(1, "link", 0, 1).op(10).build(), {0}).makespan == ticks(10));
}

void a_faster_operator_can_delay_the_end() {
    for (const auto& [first, makespan] : {std::pair{5.0, 20.0}, std::pair{4.0, 26.0}}) {
        const Problem problem = Draft(2, "link", 1, 1)
                                    .op(first, {{1000, {1}}})
                                    .op(6)
                                    .op(6, {{1000, {3, 4}}})
                                    .op(6, {{1000, {4}}})
                                    .op(6)
                                    .build();
        CHECK(run(problem, {1, 0, 0, 0, 1}).makespan == ticks(makespan));
    }
}

void an_operator_may_read_very_many_tensors() {
    constexpr int inputs = 20000;
    Draft draft(2, "link", 1, 1);
    for (int v = 0; v < inputs; ++v) draft.op(1, {{0, {inputs}}});
    CHECK(run(draft.op(1).build(), Row(inputs + 1, 0)).makespan == ticks(inputs + 1));
}

void what_cannot_run_is_named() {
    Draft draft = Draft(2, "link", 1, 1).op(1, {{8, {1}}}).op(1);
    draft.seconds[2] = inf;  // operator 1 on device 0
    draft.latency[1] = inf;  // device 0 to device 1
    const Problem problem = draft.build();
    const Schedule unsupported = run(problem, {0, 0});
    CHECK(unsupported.status == Status::unsupported && unsupported.obstacle.op == 1 &&
          unsupported.obstacle.device == 0);
    const Schedule unreachable = run(problem, {0, 1});
    CHECK(unreachable.status == Status::unreachable && unreachable.obstacle.tensor == 0);
    CHECK(unreachable.obstacle.source == 0 && unreachable.obstacle.target == 1 && unreachable.makespan == -1);
}

void an_empty_graph_takes_no_time() {
    const Problem problem = Draft(3, "link", 1, 1).build();
    CHECK(run(problem, {}).makespan == 0);
    CHECK(simulate_many(problem, {nullptr, 2}, {}, {}).ticks == (std::vector<Ticks>{0, 0}));
    CHECK(offload_many(problem, {nullptr, 1}, false, MemoryMode::peak, {}).ticks[0] == 0);
}

/// Two accelerators and a CPU (device 2) that holds host memory; every crossing of host memory takes 1 us.
Draft offload_draft() {
    Draft draft(3, "none", 0, 1);
    draft.op(1, {{1000, {1, 2}}}).op(2, {{1000, {3}}}).op(3, {{1000, {3}}}).op(4);
    draft.host = {0, 0, 1};
    draft.routing = 1;
    return draft;
}

void calls_copy_in_compute_and_copy_out() {
    const Problem problem = offload_draft().build();
    const auto latency = [&](const Row& placement, bool overlapping) {
        return offload_many(problem, {placement.data(), 1}, overlapping, MemoryMode::off, {}).ticks[0];
    };
    CHECK(latency({2, 2, 2, 2}, false) == ticks(1 + 3 + 4));      // all on the CPU: the longest path
    CHECK(latency({0, 0, 0, 0}, false) == ticks(1 + 2 + 3 + 4));  // one call
    CHECK(latency({2, 0, 2, 2}, false) == ticks(1 + (1 + 2 + 1) + 4));
    CHECK(latency({0, 2, 0, 0}, true) == ticks((1 + 3 + 2) + 2 + (2 + 4)));  // {0, 2} writes two tensors, {3} reads two
    const Row crossed{0, 0, 1, 1};
    const Problem chains = [] {
        Draft draft(2, "none", 0, 1);
        return draft.op(1, {{0, {1}}}).op(1).op(1, {{0, {3}}}).op(1).build();
    }();
    const Row cyclic{0, 1, 1, 0};
    CHECK(offload_many(chains, {crossed.data(), 1}, false, MemoryMode::off, {}).ticks[0] == ticks(2));
    CHECK(offload_many(chains, {cyclic.data(), 1}, false, MemoryMode::off, {}).status[0] ==
          static_cast<std::uint8_t>(Status::cyclic));
}

void loads_count_each_crossing_at_both_ends() {
    Draft draft = offload_draft();
    draft.phase = {0, 0, 1, 2};
    const Row placement{0, 1, 2, 0};
    const LoadScores host = loads_many(draft.build(), {placement.data(), 1}, MemoryMode::peak, {});
    CHECK((host.compute == std::vector<Ticks>{ticks(1), ticks(4), ticks(2), 0, 0, ticks(3)}));
    CHECK((host.sent == std::vector<Ticks>{ticks(1), 0, ticks(1), 0, 0, 0}));
    CHECK((host.received == std::vector<Ticks>{ticks(1), ticks(1), ticks(1), 0, 0, 0}));
    CHECK((host.peak == std::vector<std::int64_t>{3000, 2000, 2000}));
    draft.routing = 0;
    const LoadScores direct = loads_many(draft.build(), {placement.data(), 1}, MemoryMode::off, {});
    CHECK((direct.sent == std::vector<Ticks>{ticks(2), 0, ticks(1), 0, 0, ticks(1)}));
    CHECK((direct.received == std::vector<Ticks>{ticks(1), ticks(1), ticks(1), 0, ticks(1), 0}));
}

void one_thing_at_a_time_takes_the_sum() {
    const Problem problem = memory_draft().build();
    const Row placement{0, 1, 1, 0};
    const Scores scores =
        simulate_many(problem, {placement.data(), 1}, {.policy = Policy::sequential, .memory = MemoryMode::peak}, {});
    CHECK(scores.ticks[0] == ticks(4 * 10 + 5 + 1.1 + 1.2));
    CHECK((scores.peak == std::vector<std::int64_t>{1500 + 4000 + 300, 2500 + 4000 + 200 + 300}));
}

void bad_calls_are_refused() {
    const Problem problem = memory_draft().build();
    const Row placement{0, 1, 0, 0};
    const auto bad = [&](Policy policy, const Order& order, const Order& transfer_order = {}, bool sends = false) {
        return refused([&] { run(problem, placement, policy, order, transfer_order, sends); });
    };
    CHECK(refused([&] { run(problem, {0, 2, 0, 0}); }));
    CHECK(refused([&] { run(problem, {0, 0, 0}); }));
    CHECK(bad(Policy::fifo, {0, 1, 2, 3}));
    CHECK(bad(Policy::fifo, {}, {}, true));
    CHECK(bad(Policy::priority, {}));
    CHECK(bad(Policy::priority, {0, 1, 2, 2}));
    CHECK(bad(Policy::priority, {0, 1, 2, 4}));
    CHECK(bad(Policy::priority, {0, 1, 2, 3}, {0, 1, 2}));
    CHECK(bad(Policy::program_order, {0, 1, 3, 2}));
    CHECK(bad(Policy::program_order, {0, 1, 2}));
    const int to_1 = 4 + 0 * 2 + 1, to_0 = 4 + 1 * 2 + 0, unused = 4 + 3 * 2 + 1;  // items that send a tensor
    CHECK(!bad(Policy::program_order, {unused, 0, to_1, 1, 2, to_0, 3, unused}, {}, true));
    CHECK(bad(Policy::program_order, {0, 1, 2, to_0, 3}, {}, true));              // a transfer is missing
    CHECK(bad(Policy::program_order, {0, 1, to_1, 2, to_0, 3}, {}, true));        // after its reader
    CHECK(bad(Policy::program_order, {to_1, 0, 1, 2, to_0, 3}, {}, true));        // before its producer
    CHECK(bad(Policy::program_order, {0, to_1, to_1, 1, 2, to_0, 3}, {}, true));  // twice
    CHECK(bad(Policy::program_order, {0, to_1, 1, 1, 2, to_0, 3}, {}, true));
    CHECK(bad(Policy::program_order, {0, to_1, 1, 2, to_0}, {}, true));
    CHECK(bad(Policy::program_order, {0, to_1, 1, 2, to_0, 3, 12}, {}, true));
    CHECK(bad(Policy::program_order, {0, to_1, 1, 2, to_0, 3, -1}, {}, true));
    const Problem other = Draft(2, "link", 1, 1).op(1).op(1).op(1).op(1).build();
    const Schedule schedule = run(other, placement);
    CHECK(refused([&] { memory_curves(problem, placement, schedule); }));
}

void the_first_bad_row_is_named_for_any_threads() {
    const Problem problem = memory_draft().build();
    std::vector<DeviceIndex> rows(4 * 200, 0);
    for (int b = 0; b < 200; ++b) rows[4 * b] = b & 1, rows[4 * b + 1] = b >> 1 & 1, rows[4 * b + 3] = b > 180;
    rows[4 * 97 + 2] = 9;
    rows[4 * 150 + 2] = 7;
    for (const int threads : {1, 2, 7}) {
        std::string message;
        try {
            simulate_many(problem, {rows.data(), 200}, {}, {threads, {}});
        } catch (const std::invalid_argument& error) {
            message = error.what();
        }
        CHECK(message.starts_with("row 97: operator 2 is on device 9"));
    }
}

void the_heap_sorts() {
    std::mt19937_64 random(1);
    std::vector<std::int64_t> storage(MinHeap<std::int64_t>::slots(100)), keys(100), popped;
    for (std::int64_t& key : keys) key = static_cast<std::int64_t>(random() % 50);
    MinHeap<std::int64_t> heap(storage.data());
    for (const std::int64_t key : keys) heap.push(key);
    for (; !heap.empty(); heap.pop()) popped.push_back(heap.top());
    std::sort(keys.begin(), keys.end());
    CHECK(popped == keys && heap.top() == MinHeap<std::int64_t>::sentinel);
}

}  // namespace

void test_sim() {
    policies_differ_as_worked_out();
    transfers_can_be_ordered();
    ties_go_by_index();
    channels_queue_and_gaps_hold_them();
    a_tensor_crosses_once_per_device();
    memory_is_counted_block_by_block();
    too_little_memory_is_an_answer();
    spreading_a_chain_does_not_pay();
    a_broadcast_is_not_free();
    control_carries_nothing_and_every_input_counts();
    a_faster_operator_can_delay_the_end();
    an_operator_may_read_very_many_tensors();
    what_cannot_run_is_named();
    an_empty_graph_takes_no_time();
    calls_copy_in_compute_and_copy_out();
    loads_count_each_crossing_at_both_ends();
    one_thing_at_a_time_takes_the_sum();
    bad_calls_are_refused();
    the_first_bad_row_is_named_for_any_threads();
    the_heap_sorts();
}
