// Tests of the core without Python and without a framework, for the sanitizers. Numbers are worked out by hand; all
// times in them are microseconds.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/problem.h"
#include "sim/batch.h"
#include "sim/event_queue.h"
#include "sim/simulate.h"
#include "tests/draft.h"
#include "tests/expect.h"

using namespace stead;

void test_stages();

namespace {

Schedule run(const Problem& problem, const Row& placement, Policy policy = Policy::fifo, const Order& order = {},
             const Order& transfer_order = {}, bool sends = false) {
    return simulate(problem, placement, policy, {order, transfer_order}, sends, MemoryMode::peak);
}

Ticks ticks(double us) { return std::llround(us * 1e6); }

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

Draft memory_draft() {
    return Draft(2, "link", 1, 1)
        .op(10, {{4000, {1, 2}}}, 300)
        .op(10, {{100, {3}}}, 300)
        .op(10, {{200, {3}}}, 300)
        .op(10, {{50, {}, true}}, 300)
        .weight(1000, {0})
        .weight(2000, {1})
        .weight(500, {0, 2});
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
                placement.push_back(static_cast<std::uint8_t>(v % k));
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

void bad_problems_are_refused() {
    const Draft good = memory_draft();
    const auto bad = [&](const std::function<void(Draft&)>& spoil) {
        Draft draft = good;
        spoil(draft);
        return refused([&] { draft.build(); });
    };
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(!bad([](Draft&) {}));
    CHECK(bad([](Draft& x) { x.seconds[3] = nan; }));
    CHECK(bad([](Draft& x) { x.seconds[3] = -1; }));
    CHECK(bad([](Draft& x) { x.seconds[3] = 1e30; }));
    CHECK(bad([](Draft& x) { x.seconds.pop_back(); }));
    CHECK(bad([](Draft& x) { x.workspace[0] = -1; }));
    CHECK(bad([](Draft& x) { x.workspace[0] = std::numeric_limits<std::int64_t>::max(); }));
    CHECK(bad([](Draft& x) { x.tensor_first[1] = 3; }));
    CHECK(bad([](Draft& x) { x.tensor_first[0] = 1; }));
    CHECK(bad([](Draft& x) { x.tensor_first.back() = 5; }));
    CHECK(bad([](Draft& x) { x.bytes[0] = -4; }));
    CHECK(bad([](Draft& x) { x.bytes[0] = x.bytes[1] = std::int64_t{1} << 61; }));
    CHECK(bad([](Draft& x) { x.kept[0] = 2; }));
    CHECK(bad([](Draft& x) { x.consumer[0] = 0; }));  // reads its own output
    CHECK(bad([](Draft& x) { x.consumer[1] = 1; }));  // listed twice
    CHECK(bad([](Draft& x) { x.consumer[1] = 4; }));  // no such operator
    CHECK(bad([](Draft& x) { x.consumer[2] = -1; }));
    CHECK(bad([](Draft& x) { x.user[2] = x.user[3] = 2; }));
    CHECK(bad([](Draft& x) { x.weight_bytes[0] = -1; }));
    CHECK(bad([](Draft& x) { x.latency[1] = nan; }));
    CHECK(bad([](Draft& x) { x.speed[1] = 0; }));
    CHECK(bad([](Draft& x) { x.speed[1] = 1e-300; }));
    CHECK(bad([](Draft& x) { x.gap[1] = inf; }));
    CHECK(bad([](Draft& x) { x.channel[1] = -2; }));
    CHECK(bad([](Draft& x) { x.hops[1] = -1; }));
    CHECK(bad([](Draft& x) { x.memory[1] = -1; }));
    CHECK(bad([](Draft& x) { x.tensor_seconds = {1}; }));
    CHECK(bad([](Draft& x) { x.tensor_seconds.assign(4, inf); }));
    CHECK(bad([](Draft& x) { x.phase[0] = 3; }));
    CHECK(bad([](Draft& x) { x.host[0] = 2; }));
    CHECK(bad([](Draft& x) { x.routing = 2; }));
    CHECK(bad([](Draft& x) { x.host_speed[0] = -1; }));
    CHECK(bad([](Draft& x) { x.devices = 0; }));
    CHECK(refused([] { Draft(65, "link", 1, 1).build(); }));
    CHECK(!bad([](Draft& x) { x.latency[0] = nan; }));  // the diagonal is ignored
    CHECK(!bad([](Draft& x) {
        x.latency[1] = inf;
        x.speed[1] = 0;
    }));  // there is no such link
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
    std::vector<std::uint8_t> rows(4 * 200, 0);
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

void a_batch_can_be_interrupted() {
    std::vector<std::int64_t> rows(64);
    std::iota(rows.begin(), rows.end(), 0);
    bool interrupted = false;
    try {
        run_rows(rows, {2, [] { return true; }},
                 [] { return [](std::int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }; });
    } catch (const Interrupted&) {
        interrupted = true;
    }
    CHECK(interrupted);
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

/// A random problem with ties, zero lengths, zero bytes, several outputs, missing links and any kind of channel.
Draft random_draft(std::mt19937_64& random) {
    const auto pick = [&](auto... values) {
        const std::vector choices{values...};
        return choices[random() % choices.size()];
    };
    static const std::vector<std::string> presets{"none", "link", "pair", "sender", "receiver", "bus"};
    const int k = pick(1, 2, 3, 4, 5, 8, 16);
    const int n = static_cast<int>(random() % 40);
    Draft draft(k, presets[random() % presets.size()], pick(0.0, 1.0), pick(1.0, inf), pick(0.0, 0.0, 2.0));
    const double unit = pick(1.0, 1.0, 1e9);  // the long ones do not fit packed keys
    for (int v = 0; v < n; ++v) {
        std::vector<Draft::Tensor> tensors(random() % 3);
        for (Draft::Tensor& tensor : tensors) {
            tensor.bytes = pick(0, 1000, 2000);
            tensor.kept = random() % 5 == 0;
            for (int reader = v + 1; reader < n; ++reader)
                if (random() % 8 == 0) tensor.readers.push_back(reader);
        }
        draft.op(unit * pick(0, 0, 1, 2), tensors, pick(0, 500));
        if (random() % 3 == 0) draft.weight(pick(0, 100), v > 0 ? Order{v - 1, v} : Order{v});
    }
    for (double& latency : draft.latency)
        if (random() % 60 == 0) latency = inf;
    for (double& seconds : draft.seconds)
        if (random() % 400 == 0) seconds = inf;
    for (int d = 0; d < k; ++d) draft.host[d] = random() % 2;
    for (std::int64_t& bytes : draft.memory) bytes = pick(0, 3000, 10000, 1 << 30);
    draft.routing = static_cast<int>(random() % 2);
    if (random() % 4 == 0) draft.tensor_seconds.assign(draft.bytes.size(), 1e-6);
    return draft;
}

bool equal(const Scores& a, const Scores& b) {
    return a.ticks == b.ticks && a.status == b.status && a.peak == b.peak && a.over == b.over;
}

/// What must hold for one row of a batch, whose exact peaks are `peaks`.
void check_row(const Problem& problem, const Row& placement, const Scores& peaks, const Scores& checked, int b) {
    const Schedule fast = run(problem, placement);
    const Schedule general = run(problem, placement, Policy::fifo_general);
    CHECK(fast.makespan == peaks.ticks[b] && fast.makespan == checked.ticks[b]);
    CHECK(static_cast<std::uint8_t>(fast.status) == peaks.status[b] && peaks.status[b] == checked.status[b]);
    CHECK(fast.run.start == general.run.start && fast.run.order == general.run.order);
    CHECK(fast.transfer_cause == general.transfer_cause && fast.operator_cause == general.operator_cause);
    if (fast.makespan < 0) return;
    if (problem.single_sender_channels)
        CHECK(run(problem, placement, Policy::program_order, fast.run.order).run.start == fast.run.start);
    const std::vector<Curve> curves = memory_curves(problem, placement, fast);
    for (int d = 0; d < problem.devices; ++d) {
        const std::int64_t i = std::int64_t{b} * problem.devices + d;
        CHECK(*std::ranges::max_element(curves[d].bytes) == peaks.peak[i]);
        CHECK((checked.over[i] > 0) == (peaks.over[i] > 0) && checked.over[i] <= peaks.over[i]);
        CHECK(checked.peak[i] == -1 || checked.peak[i] == peaks.peak[i]);
    }
}

void random_problems_agree_with_themselves() {
    std::mt19937_64 random(7);
    for (int round = 0; round < 150; ++round) {
        const Problem problem = random_draft(random).build();
        const int n = problem.operators, rows = 60;
        Row placements(static_cast<std::size_t>(rows) * n);
        for (std::uint8_t& d : placements) d = static_cast<std::uint8_t>(random() % problem.devices);
        std::copy_n(placements.begin(), n, placements.begin() + 40 * n);  // a row that repeats another
        Order position(n), transfer_position(problem.tensors);
        std::iota(position.begin(), position.end(), 0);
        std::iota(transfer_position.begin(), transfer_position.end(), 0);
        std::shuffle(position.begin(), position.end(), random);
        std::shuffle(transfer_position.begin(), transfer_position.end(), random);
        const Placements all{placements.data(), rows};
        const SimulateOptions fifo{.memory = MemoryMode::peak};
        const SimulateOptions priority{.policy = Policy::priority,
                                       .order = {position.data(), n, false},
                                       .transfer_order = {transfer_position.data(), problem.tensors, false},
                                       .memory = MemoryMode::peak};
        const Scores peaks = simulate_many(problem, all, fifo, {1, {}});
        const Scores listed = simulate_many(problem, all, priority, {1, {}});
        const LoadScores loads = loads_many(problem, all, MemoryMode::peak, {1, {}});
        const Scores calls = offload_many(problem, all, false, MemoryMode::peak, {1, {}});
        for (const int threads : {2, 7}) {
            CHECK(equal(simulate_many(problem, all, fifo, {threads, {}}), peaks));
            CHECK(equal(simulate_many(problem, all, priority, {threads, {}}), listed));
            CHECK(equal(loads_many(problem, all, MemoryMode::peak, {threads, {}}), loads));
            CHECK(equal(offload_many(problem, all, false, MemoryMode::peak, {threads, {}}), calls));
        }
        const Scores checked = simulate_many(problem, all, {.memory = MemoryMode::check}, {2, {}});
        for (int b = 0; b < rows; b += 7)
            check_row(problem, Row(placements.begin() + b * n, placements.begin() + (b + 1) * n), peaks, checked, b);
        const Ticks cutoff = std::max<Ticks>(0, peaks.ticks[0]);
        const Scores cut = simulate_many(problem, all, {.memory = MemoryMode::off, .cutoff = cutoff}, {2, {}});
        for (int b = 0; b < rows; ++b) CHECK(cut.ticks[b] == (peaks.ticks[b] > cutoff ? -1 : peaks.ticks[b]));
    }
}

}  // namespace

int main() {
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
    bad_problems_are_refused();
    bad_calls_are_refused();
    the_first_bad_row_is_named_for_any_threads();
    a_batch_can_be_interrupted();
    the_heap_sorts();
    random_problems_agree_with_themselves();
    test_stages();
    std::printf(failures == 0 ? "all tests passed\n" : "%d checks failed\n", failures);
    return failures == 0 ? 0 : 1;
}
