// The module: simulation is bound here, every other room in the file of its name.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/problem.h"
#include "bindings/border.h"
#include "bounds/critical_path.h"
#include "sim/batch.h"
#include "sim/placeto.h"
#include "sim/screen/screen.h"
#include "sim/simulate.h"

namespace {

using namespace stead;
using namespace stead::bindings;

using Order = nb::ndarray<const std::int32_t, nb::c_contig, nb::device::cpu>;  // one for all rows, or one per row

void bind_problem(nb::module_& module) {
    nb::class_<Problem>(module, "Problem", "Checked, immutable arrays of one placement problem.")
        .def(
            "__init__",
            [](Problem* self, const Matrix<double>& seconds, const Matrix<std::int64_t>& workspace_bytes,
               const Vector<std::int32_t>& tensor_first, const Vector<std::int64_t>& tensor_bytes,
               const Vector<std::uint8_t>& tensor_kept, const Vector<std::int32_t>& consumer_first,
               const Vector<std::int32_t>& consumer, const Vector<std::int64_t>& weight_bytes,
               const Vector<std::int32_t>& weight_user_first, const Vector<std::int32_t>& weight_user,
               const Matrix<double>& latency_seconds, const Matrix<double>& bytes_per_second,
               const Matrix<double>& gap_seconds, const Matrix<std::int32_t>& channel,
               const Vector<std::int64_t>& memory_bytes, const Vector<double>& tensor_seconds,
               const Matrix<std::int32_t>& hops, const Vector<std::uint8_t>& phase, const Vector<std::uint8_t>& host,
               int routing, const Matrix<double>& host_latency_seconds, const Matrix<double>& host_bytes_per_second) {
                const std::size_t n = seconds.shape(0), k = seconds.shape(1);
                new (self) Problem(ProblemArrays{
                    .operators = static_cast<std::int64_t>(n),
                    .devices = static_cast<std::int64_t>(k),
                    .seconds = matrix("seconds", seconds, n, k),
                    .workspace_bytes = matrix("workspace_bytes", workspace_bytes, n, k),
                    .tensor_first = vector(tensor_first),
                    .tensor_bytes = vector(tensor_bytes),
                    .tensor_kept = vector(tensor_kept),
                    .consumer_first = vector(consumer_first),
                    .consumer = vector(consumer),
                    .weight_bytes = vector(weight_bytes),
                    .weight_user_first = vector(weight_user_first),
                    .weight_user = vector(weight_user),
                    .latency_seconds = matrix("latency_seconds", latency_seconds, k, k),
                    .bytes_per_second = matrix("bytes_per_second", bytes_per_second, k, k),
                    .gap_seconds = matrix("gap_seconds", gap_seconds, k, k),
                    .channel = matrix("channel", channel, k, k),
                    .memory_bytes = vector(memory_bytes),
                    .tensor_seconds = vector(tensor_seconds),
                    .hops = matrix("hops", hops, k, k),
                    .phase = vector(phase),
                    .host = vector(host),
                    .routing = routing,
                    .host_latency_seconds = matrix("host_latency_seconds", host_latency_seconds, 2, k),
                    .host_bytes_per_second = matrix("host_bytes_per_second", host_bytes_per_second, 2, k),
                });
            },
            nb::kw_only(), "seconds"_a.noconvert(), "workspace_bytes"_a.noconvert(), "tensor_first"_a.noconvert(),
            "tensor_bytes"_a.noconvert(), "tensor_kept"_a.noconvert(), "consumer_first"_a.noconvert(),
            "consumer"_a.noconvert(), "weight_bytes"_a.noconvert(), "weight_user_first"_a.noconvert(),
            "weight_user"_a.noconvert(), "latency_seconds"_a.noconvert(), "bytes_per_second"_a.noconvert(),
            "gap_seconds"_a.noconvert(), "channel"_a.noconvert(), "memory_bytes"_a.noconvert(),
            "tensor_seconds"_a.noconvert(), "hops"_a.noconvert(), "phase"_a.noconvert(), "host"_a.noconvert(),
            "routing"_a, "host_latency_seconds"_a.noconvert(), "host_bytes_per_second"_a.noconvert())
        .def_ro("operators", &Problem::operators)
        .def_ro("tensors", &Problem::tensors)
        .def_ro("devices", &Problem::devices)
        .def_ro("packed_keys", &Problem::packed_keys, "One 64-bit key holds any (time, operator).")
        .def_ro("single_sender_channels", &Problem::single_sender_channels, "No two devices send on one channel.");
}

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

Placements rows_of(const Problem& problem, const Matrix<std::uint8_t>& placements) {
    matrix("placements", placements, placements.shape(0), problem.operators);
    return {placements.data(), static_cast<std::int64_t>(placements.shape(0))};
}

RowOrders rows_of(const char* name, const Order& order, std::int64_t rows) {
    if (!order.is_valid()) return {};
    if (order.ndim() == 1) return {order.data(), static_cast<std::int64_t>(order.shape(0)), false};
    if (order.ndim() != 2 || static_cast<std::int64_t>(order.shape(0)) != rows)
        fail(name, " needs one axis, or two with ", rows, " rows");
    return {order.data(), static_cast<std::int64_t>(order.shape(1)), true};
}

std::span<const std::int32_t> optional(const Vector<std::int32_t>& order) {
    return order.is_valid() ? vector(order) : std::span<const std::int32_t>();
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
    property("transfer_channel", [](Self self) { return column(self.transfer_channel); }, "[transfer]; -1 = none");
    of_transfers("transfer_begin", &Transfer::begin, "[transfer]");
    of_transfers("transfer_arrive", &Transfer::arrive, "[transfer]");
    property(
        "operator_cause", [](Self self) { return column(self.operator_cause); },
        "[operator]; the tensor it waited for, -1 - u for operator u before it on its device, or -2**31 for neither");
    property(
        "transfer_cause", [](Self self) { return column(self.transfer_cause); },
        "[transfer]; -1 for its producer, or the transfer before it on its channel");
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
        [](const Problem& problem, const Vector<std::uint8_t>& placement, const std::string& policy,
           const Vector<std::int32_t>& order, const Vector<std::int32_t>& transfer_order, bool sends,
           const std::string& memory) {
            const Orders orders{optional(order), optional(transfer_order)};
            const Policy parsed_policy = parse_policy(policy);
            const MemoryMode mode = parse_memory(memory);
            return without_gil(
                [&] { return simulate(problem, vector(placement), parsed_policy, orders, sends, mode); });
        },
        "problem"_a, "placement"_a.noconvert(), "policy"_a = "fifo", "order"_a.noconvert().none() = nb::none(),
        "transfer_order"_a.noconvert().none() = nb::none(), "sends"_a = false, "memory"_a = "peak",
        "Simulates one placement and keeps the whole run.");
    module.def(
        "memory_curve",
        [](const Problem& problem, const Vector<std::uint8_t>& placement, const Schedule& schedule) {
            const std::vector<Curve> curves =
                without_gil([&] { return memory_curves(problem, vector(placement), schedule); });
            std::vector<std::pair<Result<const Ticks, 1>, Result<const std::int64_t, 1>>> result;
            for (const Curve& curve : curves) result.emplace_back(column(curve.times), column(curve.bytes));
            return result;
        },
        "problem"_a, "placement"_a.noconvert(), "schedule"_a,
        "For each device (times, bytes): so many bytes from that time on.");
}

using ScoreArrays =
    std::tuple<Result<Ticks, 1>, Result<std::uint8_t, 1>, Result<std::int64_t, 2>, Result<std::int64_t, 2>>;

ScoreArrays arrays(Scores&& scores, const Problem& problem) {
    const std::size_t rows = scores.ticks.size(), k = problem.devices;
    return {owned<Ticks, 1>(std::move(scores.ticks), {rows}), owned<std::uint8_t, 1>(std::move(scores.status), {rows}),
            owned<std::int64_t, 2>(std::move(scores.peak), {rows, k}),
            owned<std::int64_t, 2>(std::move(scores.over), {rows, k})};
}

void bind_batch(nb::module_& module) {
    module.def(
        "simulate_many",
        [](const Problem& problem, const Matrix<std::uint8_t>& placements, const std::string& policy,
           const Order& order, const Order& transfer_order, bool sends, const std::string& memory, Ticks cutoff_ticks,
           int threads) {
            const Placements rows = rows_of(problem, placements);
            const SimulateOptions options{.policy = parse_policy(policy),
                                          .order = rows_of("order", order, rows.rows),
                                          .transfer_order = rows_of("transfer_order", transfer_order, rows.rows),
                                          .sends = sends,
                                          .memory = parse_memory(memory),
                                          .cutoff = cutoff_ticks};
            return arrays(without_gil([&] { return simulate_many(problem, rows, options, workers(threads)); }),
                          problem);
        },
        "problem"_a, "placements"_a.noconvert(), "policy"_a = "fifo", "order"_a.noconvert().none() = nb::none(),
        "transfer_order"_a.noconvert().none() = nb::none(), "sends"_a = false, "memory"_a = "check",
        "cutoff_ticks"_a = never, "threads"_a = 0,
        "(ticks, status, peak, over) of many placements; orders are one for all rows or one per row.");
    module.def(
        "sequential_many",
        [](const Problem& problem, const Matrix<std::uint8_t>& placements, const std::string& memory, int threads) {
            const Placements rows = rows_of(problem, placements);
            const SimulateOptions options{.policy = Policy::sequential, .memory = parse_memory(memory)};
            return arrays(without_gil([&] { return simulate_many(problem, rows, options, workers(threads)); }),
                          problem);
        },
        "problem"_a, "placements"_a.noconvert(), "memory"_a = "check", "threads"_a = 0,
        "(ticks, status, peak, over) when the whole cluster does one thing at a time.");
    module.def(
        "offload_many",
        [](const Problem& problem, const Matrix<std::uint8_t>& placements, bool published, const std::string& memory,
           int threads) {
            const Placements rows = rows_of(problem, placements);
            const MemoryMode mode = parse_memory(memory);
            return arrays(without_gil([&] { return offload_many(problem, rows, published, mode, workers(threads)); }),
                          problem);
        },
        "problem"_a, "placements"_a.noconvert(), "published"_a = false, "memory"_a = "check", "threads"_a = 0,
        "(ticks, status, peak, over) when accelerators are called like functions; status 5: calls wait for each "
        "other.");
    module.def(
        "loads_many",
        [](const Problem& problem, const Matrix<std::uint8_t>& placements, const std::string& memory, int threads) {
            const Placements rows = rows_of(problem, placements);
            const MemoryMode mode = parse_memory(memory);
            LoadScores scores = without_gil([&] { return loads_many(problem, rows, mode, workers(threads)); });
            const std::array<std::size_t, 3> shape = {placements.shape(0), static_cast<std::size_t>(problem.devices),
                                                      2};
            auto loads = std::make_tuple(owned<Ticks, 3>(std::move(scores.compute), shape),
                                         owned<Ticks, 3>(std::move(scores.received), shape),
                                         owned<Ticks, 3>(std::move(scores.sent), shape));
            auto [ticks, status, peak, over] = arrays(std::move(scores), problem);
            return std::tuple_cat(std::move(loads), std::make_tuple(status, peak, over));
        },
        "problem"_a, "placements"_a.noconvert(), "memory"_a = "check", "threads"_a = 0,
        "(compute, received, sent, status, peak, over) per sample; loads are [row, device, forward | backward].");
}

void bind_paths(nb::module_& module) {
    module.def(
        "earliest_finish",
        [](const Problem& problem, bool through_host) {
            const Crossing crossing = through_host ? Crossing::host : Crossing::link;
            return column(without_gil([&] { return earliest_finish(problem, crossing); }));
        },
        "problem"_a, "through_host"_a = false,
        "[operator]; ticks before which no placement can finish it; 2**63 - 1 where none can run it.");
}

void bind_screen(nb::module_& module) {
    module.def(
        "screen_many",
        [](const Problem& problem, const Matrix<std::uint8_t>& placements, const Vector<std::int32_t>& order, int threads,
           bool baseline) {
            const Placements rows = rows_of(problem, placements);
            const Instructions instructions = baseline ? Instructions::baseline : Instructions::best;
            std::vector<float> seconds = without_gil(
                [&] { return screen_many(problem, rows, optional(order), instructions, workers(threads)); });
            return owned<float, 1>(std::move(seconds), {placements.shape(0)});
        },
        "problem"_a, "placements"_a.noconvert(), "order"_a.noconvert().none() = nb::none(), "threads"_a = 0,
        "baseline"_a = false,
        "Rough seconds of policy program_order; inf where a placement cannot run. Baseline instructions are for tests.");
}

void bind_placeto(nb::module_& module) {
    nb::class_<PlacetoGraph>(module, "PlacetoGraph", "A checked, immutable graph of Placeto's simulator.")
        .def(
            "__init__",
            [](PlacetoGraph* self, std::vector<std::string> names, const Vector<double>& cost_us,
               const Vector<std::uint8_t>& pays_gap, const Vector<double>& held_bytes,
               const Vector<std::int32_t>& child_first, const Vector<std::int32_t>& child,
               const Vector<std::int32_t>& child_output, const Vector<double>& output_bytes) {
                new (self) PlacetoGraph(PlacetoArrays{.names = std::move(names),
                                                      .cost_us = vector(cost_us),
                                                      .pays_gap = vector(pays_gap),
                                                      .held_bytes = vector(held_bytes),
                                                      .child_first = vector(child_first),
                                                      .child = vector(child),
                                                      .child_output = vector(child_output),
                                                      .output_bytes = vector(output_bytes)});
            },
            nb::kw_only(), "names"_a, "cost_us"_a.noconvert(), "pays_gap"_a.noconvert(), "held_bytes"_a.noconvert(),
            "child_first"_a.noconvert(), "child"_a.noconvert(), "child_output"_a.noconvert(),
            "output_bytes"_a.noconvert())
        .def_prop_ro("operators", &PlacetoGraph::operators);
    module.def(
        "simulate_placeto",
        [](const PlacetoGraph& graph, const Vector<std::uint8_t>& placement, int devices) {
            PlacetoRun run = without_gil([&] { return simulate_placeto(graph, vector(placement), devices); });
            const std::size_t n = run.start_us.size(), k = run.peak_bytes.size();
            return std::make_tuple(run.makespan_us, owned<double, 1>(std::move(run.start_us), {n}),
                                   owned<double, 1>(std::move(run.peak_bytes), {k}));
        },
        "graph"_a, "placement"_a.noconvert(), "devices"_a, "(makespan, start, peak) in us and bytes.");
    module.def(
        "simulate_placeto_many",
        [](const PlacetoGraph& graph, const Matrix<std::uint8_t>& placements, int devices, bool peaks, int threads) {
            const std::size_t rows = placements.shape(0);
            const auto given = matrix("placements", placements, rows, graph.operators());
            PlacetoScores scores =
                without_gil([&] { return simulate_placeto_many(graph, given, rows, devices, peaks, workers(threads)); });
            return std::make_tuple(owned<double, 1>(std::move(scores.makespan_us), {rows}),
                                   owned<double, 2>(std::move(scores.peak_bytes), {rows, static_cast<std::size_t>(devices)}));
        },
        "graph"_a, "placements"_a.noconvert(), "devices"_a, "peaks"_a = true, "threads"_a = 0,
        "(makespan, peak) of many placements in us and bytes; peaks are -1 if not wanted.");
}

}  // namespace

NB_MODULE(_core, module) {
    module.doc() = "Native core of stead: simulation and search.";
    nb::set_leak_warnings(false);  // a Problem that lives as long as the interpreter is no mistake of its user
    bind_problem(module);
    bind_schedule(module);
    bind_simulate(module);
    bind_batch(module);
    bind_paths(module);
    bind_bounds(module);
    bind_screen(module);
    bind_placeto(module);
    bind_construct(module);
    bind_exact(module);
    bind_search(module);
    bind_balance(module);
}
