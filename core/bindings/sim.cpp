// Simulation: checks of shapes, conversions, nothing else.
#include <nanobind/stl/string.h>

#include <string>
#include <utility>
#include <vector>

#include "bindings/border.h"
#include "sim/batch.h"
#include "sim/screen/screen.h"
#include "sim/simulate.h"

namespace stead::bindings {
namespace {

using Order = nb::ndarray<const std::int32_t, nb::c_contig, nb::device::cpu>;  // one for all rows, or one per row

Policy parse_policy(const std::string& name) {
    if (name == "fifo") return Policy::fifo;
    if (name == "fifo_general") return Policy::fifo_general;
    if (name == "priority") return Policy::priority;
    if (name == "program_order") return Policy::program_order;
    fail("policy must be fifo, fifo_general, priority or program_order, got '", name, "'");
}

MemoryMode parse_memory(const std::string& name) {
    if (name == "off") return MemoryMode::off;
    if (name == "check") return MemoryMode::check;
    if (name == "peak") return MemoryMode::peak;
    fail("memory must be off, check or peak, got '", name, "'");
}

Placements rows_of(const Problem& problem, const DeviceArray<2>& placements, const Devices& devices) {
    check_rows("placements", placements, placements.shape(0), problem.operators);
    return {devices.data(), static_cast<std::int64_t>(placements.shape(0))};
}

/// Rows as the caller holds them, for functions that read one at a time.
Placements rows_of(const Problem& problem, const DeviceArray<2>& placements) {
    check_rows("placements", placements, placements.shape(0), problem.operators);
    check_device_type("placements", placements);
    const auto rows = static_cast<std::int64_t>(placements.shape(0));
    if (placements.dtype() == nb::dtype<DeviceIndex>()) return {static_cast<const DeviceIndex*>(placements.data()), rows};
    return {.rows = rows, .narrow = static_cast<const std::uint8_t*>(placements.data())};
}

RowOrders rows_of(const char* name, const Order& order, std::int64_t rows) {
    if (!order.is_valid()) return {};
    if (order.ndim() == 1) return {order.data(), static_cast<std::int64_t>(order.shape(0)), false};
    if (order.ndim() != 2 || static_cast<std::int64_t>(order.shape(0)) != rows)
        fail(name, " needs one axis, or two with ", rows, " rows");
    return {order.data(), static_cast<std::int64_t>(order.shape(1)), true};
}

void bind_schedule(nb::module_& module) {
    nb::class_<Schedule> schedule(module, "Schedule", "One simulated run; times in picoseconds, arrays are copies.");
    const auto property = [&](const char* name, auto get, const char* doc) {
        schedule.def_prop_ro(name, get, nb::rv_policy::automatic, doc);  // arrays own their memory
    };
    const auto of_transfers = [&](const char* name, auto member, const char* doc) {
        property(
            name,
            [member](const Schedule& self) {
                using Value = std::remove_cvref_t<decltype(Transfer{}.*member)>;
                return column<Value>(self.run.transfers,
                                     [member](const Transfer& transfer) { return transfer.*member; });
            },
            doc);
    };
    using Self = const Schedule&;
    property("start", [](Self self) { return column(self.run.start); }, "[operator]");
    property("finish", [](Self self) { return column(self.run.finish); }, "[operator]");
    property("order", [](Self self) { return column(self.run.order); }, "Operators as they were processed.");
    of_transfers("transfer_tensor", &Transfer::tensor, "[transfer], as they were booked");
    property("transfer_source", [](Self self) { return column(self.transfer_source); }, "[transfer]");
    of_transfers("transfer_target", &Transfer::target, "[transfer]");
    property("transfer_channel", [](Self self) { return column(self.transfer_channel); }, "[transfer]; -1 = none, -2 = carried by the sender");
    of_transfers("transfer_begin", &Transfer::begin, "[transfer]");
    of_transfers("transfer_arrive", &Transfer::arrive, "[transfer]");
    property(
        "operator_cause", [](Self self) { return column(self.operator_cause); },
        "[operator]; the tensor it waited for, -1 - u for operator u before it on its device, or -2**31 for neither");
    property(
        "transfer_cause", [](Self self) { return column(self.transfer_cause); },
        "[transfer]; -1 for its producer, or the transfer before it on its channel or by its sender");
    property("makespan", [](Self self) { return self.makespan; }, "The last finish; -1 when the placement cannot run.");
    property(
        "peak_bytes",
        [](Self self) { return column<std::int64_t>(self.peaks, [](const Peak& peak) { return peak.bytes; }); },
        "[device]; -1 with memory off");
    property(
        "peak_at", [](Self self) { return column<Ticks>(self.peaks, [](const Peak& peak) { return peak.at; }); },
        "[device]; first moment of the peak, -1 with memory off");
    property("weights_bytes", [](Self self) { return column(self.weights); }, "[device]");
    property(
        "status", [](Self self) { return static_cast<int>(self.status); },
        "0 ok, 1 memory, 2 unsupported (operator, device), 3 unreachable (source, target, tensor)");
    property("status_operator", [](Self self) { return self.obstacle.op; }, "-1 unless unsupported");
    property("status_device", [](Self self) { return self.obstacle.device; }, "-1 unless unsupported");
    property("status_source", [](Self self) { return self.obstacle.source; }, "-1 unless unreachable");
    property("status_target", [](Self self) { return self.obstacle.target; }, "-1 unless unreachable");
    property("status_tensor", [](Self self) { return self.obstacle.tensor; }, "-1 unless unreachable");
}

void bind_simulate(nb::module_& module) {
    module.def(
        "simulate",
        [](const Problem& problem, const DeviceArray<1>& placement, const std::string& policy,
           const Vector<std::int32_t>& order, const Vector<std::int32_t>& transfer_order, bool sends,
           const std::string& memory) {
            const Devices devices("placement", placement);
            const Orders orders{optional(order), optional(transfer_order)};
            const Policy parsed_policy = parse_policy(policy);
            const MemoryMode mode = parse_memory(memory);
            return without_gil(
                [&] { return simulate(problem, devices.all(), parsed_policy, orders, sends, mode); });
        },
        "problem"_a, "placement"_a.noconvert(), nb::kw_only(), "policy"_a = "fifo", "order"_a.noconvert().none() = nb::none(),
        "transfer_order"_a.noconvert().none() = nb::none(), "sends"_a = false, "memory"_a = "peak",
        "Simulates one placement and keeps the whole run.");
}

void bind_scores(nb::module_& module) {
    nb::class_<Scores> scores(module, "Scores", "Scores of a batch, one per row.");
    def_array(scores, "ticks", &Scores::ticks, "[row]; -1 unless it was simulated to its end");
    def_array(scores, "status", &Scores::status, "[row]; as in Schedule, 4 cut, 5 calls wait for each other");
    const auto def_bytes = [&](const char* name, std::vector<std::int64_t> Scores::*bytes, const char* doc) {
        scores.def_prop_ro(
            name, [bytes](Scores& self) { return shared<std::int64_t, 2>(self.*bytes, {self.rows(), self.devices}); },
            doc);
    };
    def_bytes("peak_bytes", &Scores::peak, "[row, device]; -1 where it was not determined");
    def_bytes("over_bytes", &Scores::over, "[row, device]; at least so many are missing");
    nb::class_<LoadScores, Scores> loads(module, "LoadScores",
                                         "Loads per sample, [row, device, forward | backward]; -1 without a run.");
    const auto def_load = [&](const char* name, std::vector<Ticks> LoadScores::*load) {
        loads.def_prop_ro(
            name, [load](LoadScores& self) { return shared<Ticks, 3>(self.*load, {self.rows(), self.devices, 2}); });
    };
    def_load("compute_ticks", &LoadScores::compute);
    def_load("received_ticks", &LoadScores::received);
    def_load("sent_ticks", &LoadScores::sent);
}

void bind_batch(nb::module_& module) {
    module.def(
        "simulate_many",
        [](const Problem& problem, const DeviceArray<2>& placements, const std::string& policy,
           const Order& order, const Order& transfer_order, bool sends, const std::string& memory, Ticks cutoff_ticks,
           int threads) {
            const Placements rows = rows_of(problem, placements);
            const SimulateOptions options{.policy = parse_policy(policy),
                                          .order = rows_of("order", order, rows.rows),
                                          .transfer_order = rows_of("transfer_order", transfer_order, rows.rows),
                                          .sends = sends,
                                          .memory = parse_memory(memory),
                                          .cutoff = cutoff_ticks};
            return without_gil([&] { return simulate_many(problem, rows, options, workers(threads)); });
        },
        "problem"_a, "placements"_a.noconvert(), nb::kw_only(), "policy"_a = "fifo",
        "order"_a.noconvert().none() = nb::none(), "transfer_order"_a.noconvert().none() = nb::none(),
        "sends"_a = false, "memory"_a = "check", "cutoff_ticks"_a = never, "threads"_a = 0,
        "Simulates many placements; orders are one for all rows or one per row.");
    module.def(
        "sequential_many",
        [](const Problem& problem, const DeviceArray<2>& placements, const std::string& memory, int threads) {
            const Placements rows = rows_of(problem, placements);
            const SimulateOptions options{.policy = Policy::sequential, .memory = parse_memory(memory)};
            return without_gil([&] { return simulate_many(problem, rows, options, workers(threads)); });
        },
        "problem"_a, "placements"_a.noconvert(), nb::kw_only(), "memory"_a = "check", "threads"_a = 0,
        "Scores when the whole cluster does one thing at a time.");
    module.def(
        "offload_many",
        [](const Problem& problem, const DeviceArray<2>& placements, bool published, const std::string& memory,
           int threads) {
            const Placements rows = rows_of(problem, placements);
            const MemoryMode mode = parse_memory(memory);
            return without_gil([&] { return offload_many(problem, rows, published, mode, workers(threads)); });
        },
        "problem"_a, "placements"_a.noconvert(), nb::kw_only(), "published"_a = false, "memory"_a = "check",
        "threads"_a = 0, "Scores when accelerators are called like functions.");
    module.def(
        "loads_many",
        [](const Problem& problem, const DeviceArray<2>& placements, const std::string& memory, int threads) {
            const Placements rows = rows_of(problem, placements);
            const MemoryMode mode = parse_memory(memory);
            return without_gil([&] { return loads_many(problem, rows, mode, workers(threads)); });
        },
        "problem"_a, "placements"_a.noconvert(), nb::kw_only(), "memory"_a = "check", "threads"_a = 0,
        "Steady-state loads of many placements; their ticks stay -1.");
}

void bind_screen(nb::module_& module) {
    module.def(
        "screen_many",
        [](const Problem& problem, const DeviceArray<2>& placements, const Vector<std::int32_t>& order, int threads,
           bool baseline) {
            const Devices devices("placements", placements);
            const Placements rows = rows_of(problem, placements, devices);
            const Instructions instructions = baseline ? Instructions::baseline : Instructions::best;
            std::vector<float> seconds = without_gil(
                [&] { return screen_many(problem, rows, optional(order), instructions, workers(threads)); });
            return owned<float, 1>(std::move(seconds), {placements.shape(0)});
        },
        "problem"_a, "placements"_a.noconvert(), nb::kw_only(), "order"_a.noconvert().none() = nb::none(), "threads"_a = 0,
        "baseline"_a = false,
        "Rough seconds of policy program_order; inf where a placement cannot run. Baseline instructions are for tests.");
}

}  // namespace

void bind_sim(nb::module_& module) {
    bind_schedule(module);
    bind_simulate(module);
    bind_scores(module);
    bind_batch(module);
    bind_screen(module);
}

}  // namespace stead::bindings
