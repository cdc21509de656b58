// Exact solvers: checks of shapes, conversions, nothing else.
#include <nanobind/stl/string.h>

#include <cmath>
#include <string>

#include "bindings/border.h"
#include "stages/ideals.h"
#include "stages/linear_dp.h"
#include "stages/stages.h"

namespace stead::bindings {
namespace {

using Cube = nb::ndarray<const Ticks, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

void bind_instance(nb::module_& module) {
    nb::class_<Stages>(module, "Stages", "Checked, immutable nodes, tensors between them and kinds of devices.")
        .def(
            "__init__",
            [](Stages* self, const Cube& ticks, const Matrix<std::int32_t>& order,
               const Vector<std::int32_t>& tensor_source, const Vector<std::uint8_t>& tensor_late,
               const Vector<std::int64_t>& reader_first, const Vector<std::int32_t>& readers,
               const Matrix<Ticks>& receive_ticks, const Matrix<Ticks>& send_ticks,
               const Vector<std::int64_t>& weight_bytes, const Vector<std::int64_t>& user_first,
               const Vector<std::int32_t>& users, const Vector<std::int32_t>& kind_count,
               const Vector<std::int64_t>& kind_memory) {
                const std::size_t n = ticks.shape(0), k = ticks.shape(1), tensors = tensor_source.size();
                if (ticks.shape(2) != 2) fail("ticks needs two entries per node and kind, got ", ticks.shape(2));
                new (self) Stages(StagesArrays{
                    .nodes = static_cast<std::int64_t>(n),
                    .kinds = static_cast<std::int64_t>(k),
                    .ticks = {ticks.data(), ticks.size()},
                    .order = matrix("order", order, order.shape(0), 2),
                    .tensor_source = vector(tensor_source),
                    .tensor_late = vector(tensor_late),
                    .reader_first = vector(reader_first),
                    .readers = vector(readers),
                    .receive_ticks = matrix("receive_ticks", receive_ticks, tensors, k),
                    .send_ticks = matrix("send_ticks", send_ticks, tensors, k),
                    .weight_bytes = vector(weight_bytes),
                    .user_first = vector(user_first),
                    .users = vector(users),
                    .kind_count = vector(kind_count),
                    .kind_memory = vector(kind_memory),
                });
            },
            nb::kw_only(), "ticks"_a.noconvert(), "order"_a.noconvert(), "tensor_source"_a.noconvert(),
            "tensor_late"_a.noconvert(), "reader_first"_a.noconvert(), "readers"_a.noconvert(),
            "receive_ticks"_a.noconvert(), "send_ticks"_a.noconvert(), "weight_bytes"_a.noconvert(),
            "user_first"_a.noconvert(), "users"_a.noconvert(), "kind_count"_a.noconvert(),
            "kind_memory"_a.noconvert())
        .def_ro("nodes", &Stages::nodes)
        .def_ro("kinds", &Stages::kinds);
}

StagePrices prices_of(const Stages& stages, const std::string& load, int replicas, const Vector<double>& sync) {
    if (replicas < 1) fail("replicas must be at least 1, got ", replicas);
    StagePrices prices{parse_load(load), replicas, std::vector<double>(stages.kinds, 0.0)};
    if (!sync.is_valid()) return prices;
    if (sync.size() != prices.sync_ticks_per_byte.size())
        fail("sync_ticks_per_byte needs ", stages.kinds, " entries, got ", sync.size());
    for (std::size_t j = 0; j < sync.size(); ++j) {
        if (!(sync.data()[j] >= 0) || std::isinf(sync.data()[j]))
            fail("sync_ticks_per_byte must be finite and at least 0, but kind ", j, " has ", sync.data()[j]);
        prices.sync_ticks_per_byte[j] = sync.data()[j];
    }
    return prices;
}

/// What every result that holds a split offers.
template <class Result>
void bind_split(nb::class_<Result>& result, const StageSplit& (*split)(const Result&)) {
    using Self = const Result&;
    result.def_prop_ro(
        "value_ticks", [split](Self self) { return split(self).ticks; },
        "Of the busiest device; -1 when there is no split.");
    result.def_prop_ro(
        "stage_of_node", [split](Self self) { return column(split(self).stage_of_node); }, nb::rv_policy::automatic,
        "[node]; empty when there is no split");
    result.def_prop_ro(
        "kind_of_stage", [split](Self self) { return column(split(self).kind_of_stage); }, nb::rv_policy::automatic,
        "[stage]");
    result.def_prop_ro(
        "replicas_of_stage", [split](Self self) { return column(split(self).replicas_of_stage); },
        nb::rv_policy::automatic, "[stage]");
}

const char* status_of(const IdealsRun& run) {
    switch (run.stop) {
        case Stop::bytes: return "bytes";
        case Stop::pairs: return "pairs";
        case Stop::time: return "time";
        default: return run.split.ticks >= 0 ? "optimal" : "cutoff";
    }
}

void bind_ideals(nb::module_& module) {
    nb::class_<IdealsRun> run(module, "IdealsRun", "The best split found, and what the search has proved.");
    bind_split<IdealsRun>(run, [](const IdealsRun& self) -> const StageSplit& { return self.split; });
    run.def_prop_ro("status", status_of,
                    "optimal; cutoff: no split is below it; bytes, pairs or time: stopped early by that limit");
    run.def_ro("bound_ticks", &IdealsRun::bound, "No split is below this.");
    run.def_ro("ideals", &IdealsRun::ideals, "Ideals that were stored.");
    run.def_ro("pairs", &IdealsRun::pairs, "Stages that were tried after some ideal.");
    run.def_ro("peak_bytes", &IdealsRun::bytes, "Memory for ideals.");
    module.def(
        "ideals",
        [](const Stages& stages, const std::string& load, Ticks cutoff_ticks, std::int64_t max_bytes,
           std::int64_t max_pairs, double seconds, int threads, int replicas, const Vector<double>& sync) {
            const StagePrices prices = prices_of(stages, load, replicas, sync);
            const IdealsLimits limits{cutoff_ticks, max_bytes, max_pairs, checked_seconds(seconds)};
            return without_gil([&] { return find_ideals(stages, prices, limits, workers(threads)); });
        },
        "stages"_a, nb::kw_only(), "load"_a = "sum", "cutoff_ticks"_a = never, "max_bytes"_a = never,
        "max_pairs"_a = never, "seconds"_a = INFINITY, "threads"_a = 0, "replicas"_a = 1,
        "sync_ticks_per_byte"_a.noconvert().none() = nb::none(),
        "The best split into contiguous stages below the cutoff, by dynamic programming over ideals.");
}

void bind_linear(nb::module_& module) {
    nb::class_<StageSplit> split(module, "StageSplit", "Stages in the order of the pipeline.");
    bind_split<StageSplit>(split, [](const StageSplit& self) -> const StageSplit& { return self; });
    module.def(
        "linear_dp",
        [](const Stages& stages, const Vector<std::int32_t>& order, const std::string& load, Ticks cutoff_ticks,
           double seconds, int replicas, const Vector<double>& sync) {
            const StagePrices prices = prices_of(stages, load, replicas, sync);
            const LinearLimits limits{cutoff_ticks, checked_seconds(seconds)};
            return without_gil(
                [&] { return find_linear_split(stages, prices, vector(order), limits, workers(1)); });
        },
        "stages"_a, "order"_a.noconvert(), nb::kw_only(), "load"_a = "sum", "cutoff_ticks"_a = never,
        "seconds"_a = INFINITY, "replicas"_a = 1, "sync_ticks_per_byte"_a.noconvert().none() = nb::none(),
        "The best split of one order into stages; none below the cutoff or in time is value -1.");
}

}  // namespace

void bind_stages(nb::module_& module) {
    bind_instance(module);
    bind_ideals(module);
    bind_linear(module);
}

}  // namespace stead::bindings
