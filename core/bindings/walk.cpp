// Walks: checks of shapes, conversions, nothing else.
#include "build/walk.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <span>
#include <string>
#include <vector>

#include "base/placement.h"
#include "bindings/border.h"

namespace stead::bindings {

namespace {

struct WalkShape {
    int device_rows = stead::device_rows, device_features = stead::device_features;
    int queue_rows = stead::queue_rows, queue_features = stead::queue_features;
};

WalkVariant checked_variant(const WalkVariant& given) {
    const auto check = [](const char* name, double x) {
        if (!(x >= 0.0 && x <= 1e6)) fail(name, " must lie in 0..1e6, got ", x);
    };
    check("bias", given.bias);
    check("foresight", given.foresight);
    check("noise", given.noise);
    check("tail", given.tail);
    check("cling", given.cling);
    return given;
}

/// Schedules that walks go on from; none where nothing is given.
std::vector<Guide> guides_of(const WalkTables& tables, const DeviceArray<2>& devices,
                             const Matrix<std::int32_t>& orders) {
    if (devices.is_valid() != orders.is_valid()) fail("guides need devices and orders");
    std::vector<Guide> guides;
    if (!devices.is_valid()) return guides;
    const auto operators = static_cast<std::size_t>(tables.problem().operators);
    check_rows("guide_devices", devices, devices.shape(0), operators);
    const auto order = matrix("guide_orders", orders, devices.shape(0), operators);
    const Devices read("guide_devices", devices);
    guides.reserve(devices.shape(0));
    for (std::size_t row = 0; row < devices.shape(0); ++row)
        guides.emplace_back(tables, read.all().subspan(row * operators, operators),
                            order.subspan(row * operators, operators));
    return guides;
}

}  // namespace

void bind_walk(nb::module_& module) {
    nb::class_<WalkTables>(module, "WalkTables", "What all walks over a problem, in units, look up.")
        .def(
            "__init__",
            [](WalkTables* self, const Problem& problem, const Vector<std::int32_t>& unit_of,
               const Vector<std::int32_t>& forward_of) {
                check_few_devices(problem, "a walk");
                new (self) WalkTables(problem, vector(unit_of), vector(forward_of));
            },
            "problem"_a, "unit_of"_a.noconvert(), "forward_of"_a.noconvert(), nb::keep_alive<1, 2>());
    nb::class_<WalkVariant>(module, "WalkVariant", "How one walk goes, apart from the weights of its rule.")
        .def(
            "__init__",
            [](WalkVariant* self, int rule, double bias, double foresight, const std::string& average, double noise,
               std::uint64_t seed, bool retime, int opinion, int guide, double tail, double cling) {
                new (self) WalkVariant(checked_variant({bias, foresight, parse_average(average), noise, seed, retime,
                                                        rule, opinion, guide, tail, cling}));
            },
            nb::kw_only(), "rule"_a = 0, "bias"_a = 1.0, "foresight"_a = 0.0, "average"_a = "mean", "noise"_a = 0.0,
            "seed"_a = 0, "retime"_a = false, "opinion"_a = WalkVariant::none, "guide"_a = WalkVariant::none,
            "tail"_a = 0.0, "cling"_a = 0.0);
    nb::class_<Walk> walk(module, "Walk", "Devices and an order, found by one walk.");
    def_devices(walk, "devices", &Walk::devices, "[operator]");
    def_array(walk, "order", &Walk::order, "Operators, topological.");
    walk.def_ro("ticks", &Walk::ticks, "-1 if the placement cannot run, -2 where time was up before.")
        .def_ro("over_bytes", &Walk::over_bytes, "What devices lack at their peaks, at least.")
        .def_ro("simulations", &Walk::simulations)
        .def_ro("retimed", &Walk::retimed, "Whether the order is one by ranks at the chosen devices.");
    nb::class_<WalkShape>(module, "WalkShape", "Rows and features of the weights of a rule: of devices, of the queue.")
        .def_ro("device_rows", &WalkShape::device_rows)
        .def_ro("device_features", &WalkShape::device_features)
        .def_ro("queue_rows", &WalkShape::queue_rows)
        .def_ro("queue_features", &WalkShape::queue_features);
    module.def("walk_shape", [] { return WalkShape(); }, "What weights a rule has.");
    module.def(
        "walks",
        [](const WalkTables& tables, const Matrix<double>& weights, const std::vector<WalkVariant>& variants,
           const Vector<std::int64_t>& limit_bytes, const Matrix<double>& opinions,
           const DeviceArray<2>& guide_devices, const Matrix<std::int32_t>& guide_orders, double seconds,
           int threads) {
            const double limit = checked_seconds(seconds);
            const auto rules = matrix("weights", weights, weights.shape(0), rule_weights);
            std::span<const double> thought;
            if (opinions.is_valid()) {
                const auto width = static_cast<std::size_t>(tables.list.units()) * tables.problem().devices;
                thought = matrix("opinions", opinions, opinions.shape(0), width);
            }
            const auto guides = guides_of(tables, guide_devices, guide_orders);
            return without_gil([&] {
                return walks(tables, rules, thought, guides, variants, vector(limit_bytes), limit, workers(threads));
            });
        },
        "tables"_a, "weights"_a.noconvert(), nb::kw_only(), "variants"_a, "limit_bytes"_a.noconvert(),
        "opinions"_a.noconvert().none() = nb::none(), "guide_devices"_a.noconvert().none() = nb::none(),
        "guide_orders"_a.noconvert().none() = nb::none(), "seconds"_a = INFINITY, "threads"_a = 0,
        "A walk for each variant, by the rows of weights, of opinions [row, unit * device] and of guides [row, operator] "
        "that it names.");
}

}  // namespace stead::bindings
