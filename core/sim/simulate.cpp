#include "sim/simulate.h"

#include <algorithm>
#include <string>

#include "base/fail.h"
#include "sim/policies/fifo.h"
#include "sim/policies/priority.h"
#include "sim/policies/program_order.h"

namespace stead {

void Engine::check_with(const DeviceIndex*, const Orders&) {}

std::unique_ptr<Engine> make_engine(const Problem& problem, Policy policy, bool sends) {
    if (sends && policy != Policy::program_order) fail("only the policy program_order lists transfers (sends)");
    switch (policy) {
        case Policy::fifo: return std::make_unique<Fifo>(problem, false);
        case Policy::fifo_general: return std::make_unique<Fifo>(problem, true);
        case Policy::priority: return std::make_unique<Priority>(problem);
        case Policy::program_order: return std::make_unique<ProgramOrder>(problem, sends);
        case Policy::sequential: return std::make_unique<Sequential>(problem);
    }
    fail("unknown policy");
}

namespace {

/// Lists transfers in the order in which the channels are specified to serve them, (finish, ready, index of the
/// producer, tensor, first reader): the fast algorithm books them in increasing (ready, index) of the producers.
void sort_fifo_transfers(const Problem& problem, Run& run) {
    std::stable_sort(run.transfers.begin(), run.transfers.end(), [&](const Transfer& a, const Transfer& b) {
        return run.finish[problem.producer[a.tensor]] < run.finish[problem.producer[b.tensor]];
    });
}

/// Where each transfer came from and which channel it took.
void add_routes(const Problem& problem, Schedule& schedule) {
    for (const Transfer& transfer : schedule.run.transfers) {
        const int source = schedule.placement[problem.producer[transfer.tensor]];
        const int channel = problem.link(source, transfer.target).channel;
        schedule.transfer_source.push_back(source);
        schedule.transfer_channel.push_back(channel < 0 ? channel : problem.channel_names[channel]);
    }
}

/// What made each operator start when it did: the input that came last (the lowest tensor among equals), or the
/// operator before it on its device.
std::vector<std::int32_t> operator_causes(const Problem& problem, const DeviceIndex* placement, const Run& run) {
    std::vector<std::int32_t> first(problem.tensors + 1, 0), by_tensor(run.transfers.size());
    for (const Transfer& transfer : run.transfers) ++first[transfer.tensor + 1];
    for (std::int32_t t = 0; t < problem.tensors; ++t) first[t + 1] += first[t];
    std::vector<std::int32_t> next(first.begin(), first.end() - 1);
    for (std::size_t x = 0; x < run.transfers.size(); ++x)
        by_tensor[next[run.transfers[x].tensor]++] = static_cast<std::int32_t>(x);

    std::vector<std::int32_t> cause(problem.operators, no_cause);
    std::vector<Ticks> ready(problem.operators, -1);
    Ticks at[max_devices];
    for (std::int32_t t = 0; t < problem.tensors; ++t) {
        const std::int32_t p = problem.producer[t];
        at[placement[p]] = run.finish[p];
        for (std::int32_t i = first[t]; i < first[t + 1]; ++i)
            at[run.transfers[by_tensor[i]].target] = run.transfers[by_tensor[i]].arrive;
        for (std::int32_t i = problem.consumer_first[t]; i < problem.consumer_first[t + 1]; ++i) {
            const std::int32_t reader = problem.consumer[i];
            if (at[placement[reader]] <= ready[reader]) continue;
            ready[reader] = at[placement[reader]];
            cause[reader] = t;
        }
    }
    std::int32_t previous[max_devices];
    for (const std::int32_t v : run.order) {
        if (run.start[v] > std::max<Ticks>(0, ready[v])) cause[v] = -1 - previous[placement[v]];
        previous[placement[v]] = v;
    }
    return cause;
}

/// The transfer that the sender of transfer `x` carried until that began.
std::int32_t carried_before(const Problem& problem, const DeviceIndex* placement, const Run& run, std::int32_t x) {
    const std::int32_t p = problem.producer[run.transfers[x].tensor];
    const auto is_it = [&](const Transfer& other) {
        return problem.producer[other.tensor] == p && other.arrive == run.transfers[x].begin &&
               problem.link(placement[p], other.target).channel == by_sender;
    };
    std::int32_t before = x - 1;
    while (!is_it(run.transfers[before])) --before;
    return before;
}

std::vector<std::int32_t> transfer_causes(const Problem& problem, const DeviceIndex* placement, const Run& run) {
    std::vector<std::int32_t> cause(run.transfers.size(), caused_by_producer), previous(problem.channels, -1);
    for (std::size_t x = 0; x < run.transfers.size(); ++x) {
        const Transfer& transfer = run.transfers[x];
        const std::int32_t p = problem.producer[transfer.tensor];
        const int h = problem.link(placement[p], transfer.target).channel;
        if (h == by_sender && transfer.begin > run.finish[p])
            cause[x] = carried_before(problem, placement, run, static_cast<std::int32_t>(x));
        if (h < 0) continue;
        if (transfer.begin > run.finish[p]) cause[x] = previous[h];
        previous[h] = static_cast<std::int32_t>(x);
    }
    return cause;
}

void check_length(const Problem& problem, std::span<const DeviceIndex> placement) {
    if (static_cast<std::int64_t>(placement.size()) != problem.operators)
        fail("placement needs ", problem.operators, " entries, got ", placement.size());
}

}  // namespace

Schedule simulate(const Problem& problem, std::span<const DeviceIndex> placement, Policy policy, const Orders& orders,
                  bool sends, MemoryMode memory) {
    check_length(problem, placement);
    const std::unique_ptr<Engine> engine = make_engine(problem, policy, sends);
    check_placement(problem, placement.data());
    engine->check(orders);
    engine->check_with(placement.data(), orders);

    Schedule schedule;
    schedule.obstacle = find_obstacle(problem, placement.data());
    schedule.status = schedule.obstacle.status;
    if (schedule.status != Status::ok) return schedule;

    schedule.placement.assign(placement.begin(), placement.end());
    schedule.tensors = problem.tensors;
    schedule.run = Run(problem);
    schedule.makespan = engine->simulate(placement.data(), orders, never, &schedule.run);
    schedule.run.transfers.resize(schedule.run.transfer_count);
    if (policy == Policy::fifo || policy == Policy::fifo_general) sort_fifo_transfers(problem, schedule.run);
    add_routes(problem, schedule);
    schedule.operator_cause = operator_causes(problem, placement.data(), schedule.run);
    schedule.transfer_cause = transfer_causes(problem, placement.data(), schedule.run);

    Memory judge(problem);
    judge.needs_run(placement.data(), memory);
    schedule.peaks = judge.judge(placement.data(), schedule.run, schedule.makespan);
    schedule.weights.resize(problem.devices);
    resident_weights(problem, placement.data(), schedule.weights.data());
    for (const Peak& peak : schedule.peaks)
        if (peak.over > 0) schedule.status = Status::memory;
    return schedule;
}

std::vector<Curve> memory_curves(const Problem& problem, std::span<const DeviceIndex> placement,
                                 const Schedule& schedule) {
    check_length(problem, placement);
    if (schedule.obstacle.status != Status::ok)
        fail("the placement of this schedule cannot run: there is no memory curve");
    if (!std::ranges::equal(placement, schedule.placement) || schedule.tensors != problem.tensors ||
        static_cast<std::int32_t>(schedule.peaks.size()) != problem.devices)
        fail("the schedule was made from another problem or placement");
    return Memory(problem).curves(placement.data(), schedule.run, schedule.makespan);
}

}  // namespace stead
