// Constructions: checks of shapes, conversions, nothing else.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <vector>

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

Average parse_average(const std::string& name) {
    if (name == "mean") return Average::mean;
    if (name == "min") return Average::min;
    if (name == "best") return Average::best;
    fail("average must be mean, min or best, got '", name, "'");
}

/// Rule, bias, average, insertion, foresight.
using Variant = std::tuple<std::string, double, std::string, bool, double>;

ListVariant parse_variant(const Variant& given) {
    const auto& [rule, bias, average, insertion, foresight] = given;
    if (!(bias >= 0.0 && bias <= 1e6)) fail("bias must lie in 0..1e6, got ", bias);
    if (!(foresight >= 0.0 && foresight <= 1e6)) fail("foresight must lie in 0..1e6, got ", foresight);
    return {parse_rule(rule), bias, parse_average(average), insertion, foresight};
}

std::vector<std::int32_t> topological_order(const Problem& problem, const std::string& kind) {
    if (kind == "rank") return by_rank(upward_ranks(problem, Average::mean));
    if (kind == "depth") return depth_first(problem, upward_ranks(problem, Average::mean));
    if (kind == "level") return by_level(problem);
    fail("kind must be rank, depth or level, got '", kind, "'");
}

/// The results of all variants, one per row.
auto arrays(const std::vector<ListResult>& results, std::size_t operators) {
    std::vector<std::uint8_t> devices;
    std::vector<std::int32_t> orders;
    std::vector<Ticks> ticks;
    devices.reserve(results.size() * operators);
    orders.reserve(results.size() * operators);
    for (const ListResult& result : results) {
        devices.insert(devices.end(), result.devices.begin(), result.devices.end());
        orders.insert(orders.end(), result.order.begin(), result.order.end());
        ticks.push_back(result.ticks);
    }
    const std::size_t rows = results.size();
    return std::make_tuple(owned<std::uint8_t, 2>(std::move(devices), {rows, operators}),
                           owned<std::int32_t, 2>(std::move(orders), {rows, operators}),
                           owned<Ticks, 1>(std::move(ticks), {rows}));
}

}  // namespace

void bind_construct(nb::module_& module) {
    module.def(
        "list_schedule",
        [](const Problem& problem, const Vector<std::int32_t>& unit_of, const std::string& rule, double bias,
           const std::string& average, bool insertion, double foresight, const Vector<std::int64_t>& limit_bytes) {
            const ListVariant variant = parse_variant({rule, bias, average, insertion, foresight});
            const std::span<const std::int64_t> limits =
                limit_bytes.is_valid() ? vector(limit_bytes) : std::span<const std::int64_t>(problem.memory_bytes);
            std::vector<ListResult> results = without_gil([&] {
                return list_schedule(ListTables(problem, vector(unit_of)), {&variant, 1}, limits, INFINITY,
                                     workers(1));
            });
            const std::array<std::size_t, 1> shape = {static_cast<std::size_t>(problem.operators)};
            return std::make_tuple(owned<std::uint8_t, 1>(std::move(results[0].devices), shape),
                                   owned<std::int32_t, 1>(std::move(results[0].order), shape), results[0].ticks);
        },
        "problem"_a, "unit_of"_a.noconvert(), nb::kw_only(), "rule"_a, "bias"_a = 1.0, "average"_a = "mean",
        "insertion"_a = true, "foresight"_a = 0.0, "limit_bytes"_a.noconvert().none() = nb::none(),
        "(devices, order, ticks) of one construction; ticks are -1 if the placement cannot run.");
    module.def(
        "list_schedule_many",
        [](const Problem& problem, const Vector<std::int32_t>& unit_of, const std::vector<Variant>& variants,
           const Vector<std::int64_t>& limit_bytes, double seconds, int threads) {
            std::vector<ListVariant> parsed;
            for (const Variant& variant : variants) parsed.push_back(parse_variant(variant));
            const double limit = checked_seconds(seconds);
            const std::vector<ListResult> results = without_gil([&] {
                return list_schedule(ListTables(problem, vector(unit_of)), parsed, vector(limit_bytes), limit,
                                     workers(threads));
            });
            return arrays(results, problem.operators);
        },
        "problem"_a, "unit_of"_a.noconvert(), nb::kw_only(), "variants"_a, "limit_bytes"_a.noconvert(),
        "seconds"_a = INFINITY, "threads"_a = 0,
        "(devices, orders, ticks) of list scheduling by each variant (rule, bias, average, insertion, "
        "foresight), one per row; ticks are -1 if the placement cannot run, -2 where time was up before.");
    module.def(
        "spill",
        [](const Problem& problem, const Vector<std::int32_t>& unit_of, const Vector<std::uint8_t>& devices,
           const Vector<std::int32_t>& order, const Vector<std::int64_t>& over_bytes,
           const Vector<std::int64_t>& room_bytes) {
            std::vector<std::uint8_t> changed(devices.data(), devices.data() + devices.size());
            const std::int64_t moved = without_gil([&] {
                return spill(ListTables(problem, vector(unit_of)), changed, vector(order), vector(over_bytes),
                             vector(room_bytes));
            });
            const std::array<std::size_t, 1> shape = {changed.size()};
            return std::make_tuple(owned<std::uint8_t, 1>(std::move(changed), shape), moved);
        },
        "problem"_a, "unit_of"_a.noconvert(), "devices"_a.noconvert(), "order"_a.noconvert(), nb::kw_only(),
        "over_bytes"_a.noconvert(), "room_bytes"_a.noconvert(),
        "(devices, moved units) once overfull devices have handed the tail of what they run to devices with room.");
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
