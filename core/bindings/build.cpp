// Constructions: checks of shapes, conversions, nothing else.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "base/placement.h"
#include "bindings/border.h"
#include "build/list_schedule.h"
#include "build/list_tables.h"
#include "build/refine_parts.h"
#include "build/spill.h"

namespace stead::bindings {

namespace {

ListRule parse_rule(const std::string& name) {
    if (name == "heft") return ListRule::heft;
    if (name == "peft") return ListRule::peft;
    if (name == "etf") return ListRule::etf;
    if (name == "sct") return ListRule::sct;
    if (name == "dfs-sticky") return ListRule::dfs_sticky;
    fail("rule must be heft, peft, etf, sct or dfs-sticky, got '", name, "'");
}

ListVariant checked_variant(const std::string& rule, double bias, const std::string& average, bool insertion,
                            double foresight, double thrift) {
    if (!(bias >= 0.0 && bias <= 1e6)) fail("bias must lie in 0..1e6, got ", bias);
    if (!(foresight >= 0.0 && foresight <= 1e6)) fail("foresight must lie in 0..1e6, got ", foresight);
    if (!(thrift >= 0.0 && thrift <= 1e6)) fail("thrift must lie in 0..1e6, got ", thrift);
    return {parse_rule(rule), bias, parse_average(average), insertion, foresight, thrift};
}

std::vector<std::int32_t> topological_order(const Problem& problem, const std::string& kind) {
    if (kind != "level") check_few_devices(problem, "an order by ranks");
    if (kind == "rank") return by_rank(upward_ranks(problem, Average::mean));
    if (kind == "depth") return depth_first(problem, upward_ranks(problem, Average::mean));
    if (kind == "level") return by_level(problem);
    fail("kind must be rank, depth or level, got '", kind, "'");
}

void bind_list_schedules(nb::module_& module) {
    nb::class_<ListVariant>(module, "ListVariant", "How one schedule is built.")
        .def(
            "__init__",
            [](ListVariant* self, const std::string& rule, double bias, const std::string& average, bool insertion,
               double foresight, double thrift) {
                new (self) ListVariant(checked_variant(rule, bias, average, insertion, foresight, thrift));
            },
            nb::kw_only(), "rule"_a, "bias"_a = 1.0, "average"_a = "mean", "insertion"_a = true, "foresight"_a = 0.0,
            "thrift"_a = 0.0);
    nb::class_<ListSchedule> schedule(module, "ListSchedule", "Devices and an order, built in one pass.");
    def_devices(schedule, "devices", &ListSchedule::devices, "[operator]");
    def_array(schedule, "order", &ListSchedule::order, "Operators, topological.");
    schedule.def_ro("ticks", &ListSchedule::ticks, "-1 if the placement cannot run, -2 where time was up before.");
    module.def(
        "list_schedules",
        [](const Problem& problem, const Vector<std::int32_t>& unit_of, const std::vector<ListVariant>& variants,
           const Vector<std::int64_t>& limit_bytes, double seconds, int threads) {
            check_few_devices(problem, "list scheduling");
            const double limit = checked_seconds(seconds);
            return without_gil([&] {
                return list_schedules(ListTables(problem, vector(unit_of)), variants, vector(limit_bytes), limit,
                                      workers(threads));
            });
        },
        "problem"_a, "unit_of"_a.noconvert(), nb::kw_only(), "variants"_a, "limit_bytes"_a.noconvert(),
        "seconds"_a = INFINITY, "threads"_a = 0, "List scheduling by each variant.");
}

void bind_spill(nb::module_& module) {
    nb::class_<Spilled> spilled(module, "Spilled", "What is left where it was, and what moved.");
    def_devices(spilled, "devices", &Spilled::devices, "[operator]");
    spilled.def_ro("moved_units", &Spilled::moved_units);
    module.def(
        "spill",
        [](const Problem& problem, const Vector<std::int32_t>& unit_of, const DeviceArray<1>& devices,
           const Vector<std::int32_t>& order, const Vector<std::int64_t>& over_bytes,
           const Vector<std::int64_t>& room_bytes) {
            check_few_devices(problem, "spill");
            const Devices given("devices", devices);
            return without_gil([&] {
                return spill(ListTables(problem, vector(unit_of)), given.all(), vector(order), vector(over_bytes),
                             vector(room_bytes));
            });
        },
        "problem"_a, "unit_of"_a.noconvert(), nb::kw_only(), "devices"_a.noconvert(), "order"_a.noconvert(),
        "over_bytes"_a.noconvert(), "room_bytes"_a.noconvert(),
        "Lets overfull devices hand the tail of what they run to devices with room.");
}

}  // namespace

void bind_build(nb::module_& module) {
    bind_list_schedules(module);
    bind_spill(module);
    module.def(
        "topological_order",
        [](const Problem& problem, const std::string& kind) {
            std::vector<std::int32_t> order = without_gil([&] { return topological_order(problem, kind); });
            const std::array<std::size_t, 1> shape = {order.size()};
            return owned<std::int32_t, 1>(std::move(order), shape);
        },
        "problem"_a, nb::kw_only(), "kind"_a, "Operators by upward rank, depth first or by level.");
    module.def(
        "refine_parts",
        [](const Vector<std::int64_t>& first, const Vector<std::int64_t>& neighbour,
           const Vector<std::int64_t>& edge_weight, const Matrix<std::int64_t>& weight,
           const Vector<std::uint64_t>& allowed, const Vector<std::int32_t>& part_of,
           const Matrix<std::int64_t>& limit, int passes) {
            const std::size_t constraints = weight.shape(1), parts = limit.shape(0);
            const WeighedGraph graph{.constraints = static_cast<std::int64_t>(constraints),
                                     .first = vector(first),
                                     .neighbour = vector(neighbour),
                                     .edge_weight = vector(edge_weight),
                                     .weight = matrix("weight", weight, allowed.size(), constraints),
                                     .allowed = vector(allowed)};
            const auto limits = matrix("limit", limit, parts, constraints);
            std::vector<std::int32_t> better = without_gil(
                [&] { return refine_parts(graph, vector(part_of), limits, static_cast<int>(parts), passes); });
            const std::array<std::size_t, 1> shape = {better.size()};
            return owned<std::int32_t, 1>(std::move(better), shape);
        },
        nb::kw_only(), "first"_a.noconvert(), "neighbour"_a.noconvert(), "edge_weight"_a.noconvert(),
        "weight"_a.noconvert(), "allowed"_a.noconvert(), "part_of"_a.noconvert(), "limit"_a.noconvert(),
        "passes"_a = 8, "Parts [vertex] with less weight between them, within limit [part, constraint] if possible.");
}

}  // namespace stead::bindings
