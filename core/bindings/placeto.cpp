// The simulator that Placeto was published with: checks of shapes, conversions, nothing else.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "bindings/border.h"
#include "sim/placeto.h"

namespace stead::bindings {
namespace {

void bind_results(nb::module_& module) {
    nb::class_<PlacetoRun> run(module, "PlacetoRun", "One simulated placement.");
    run.def_ro("makespan_us", &PlacetoRun::makespan_us);
    def_array(run, "start_us", &PlacetoRun::start_us, "[operator]");
    def_array(run, "peak_bytes", &PlacetoRun::peak_bytes, "[device]");
    nb::class_<PlacetoScores> scores(module, "PlacetoScores", "Many simulated placements.");
    def_array(scores, "makespan_us", &PlacetoScores::makespan_us, "[row]");
    scores.def_prop_ro(
        "peak_bytes",
        [](PlacetoScores& self) {
            return shared<double, 2>(self.peak_bytes, {self.makespan_us.size(), std::size_t(self.devices)});
        },
        "[row, device]; -1 if not wanted");
}

}  // namespace

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
    bind_results(module);
    module.def(
        "simulate_placeto",
        [](const PlacetoGraph& graph, const Vector<std::uint8_t>& placement, int devices) {
            return without_gil([&] { return simulate_placeto(graph, vector(placement), devices); });
        },
        "graph"_a, "placement"_a.noconvert(), nb::kw_only(), "devices"_a, "Runs one placement.");
    module.def(
        "simulate_placeto_many",
        [](const PlacetoGraph& graph, const Matrix<std::uint8_t>& placements, int devices, bool peaks, int threads) {
            const std::size_t rows = placements.shape(0);
            const auto given = matrix("placements", placements, rows, graph.operators());
            return without_gil(
                [&] { return simulate_placeto_many(graph, given, rows, devices, peaks, workers(threads)); });
        },
        "graph"_a, "placements"_a.noconvert(), nb::kw_only(), "devices"_a, "peaks"_a = true, "threads"_a = 0,
        "Scores many placements.");
}

}  // namespace stead::bindings
