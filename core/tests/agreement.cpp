// Random problems on which ways to simulate must agree with each other.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "sim/batch.h"
#include "tests/draft.h"
#include "tests/expect.h"
#include "tests/simulated.h"

using namespace stead;

namespace {

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
        for (DeviceIndex& d : placements) d = static_cast<DeviceIndex>(random() % problem.devices);
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

void test_agreement() {
    random_problems_agree_with_themselves();
}
