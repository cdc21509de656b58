// Searches for the least largest load: checks of shapes, conversions, nothing else.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <string>

#include "base/placement.h"
#include "bindings/border.h"
#include "search/balance/balance.h"
#include "search/balance/supernodes.h"

namespace stead::bindings {
namespace {

Starts rows_of(const Supernodes& nodes, const DeviceArray<2>& starts, const Devices& devices) {
    check_rows("starts", starts, starts.shape(0), nodes.count());
    return {devices.data(), static_cast<std::int64_t>(starts.shape(0))};
}

void bind_results(nb::module_& module) {
    auto best = bind_interruptible<Balanced>(module, "Balanced", "The best placement that annealing has met.");
    def_devices(best, "devices", &Balanced::devices, "[supernode]");
    best.def_ro("ticks", &Balanced::ticks, "The largest load; -1 if nothing it met can run.");
    best.def_ro("moves", &Balanced::moves, "Moves that were tried.");
    best.def_ro("trail", &Balanced::trail, "Whenever the largest load fell.");
    auto descents = bind_interruptible<Descents>(module, "Descents", "Where descents have ended, one per start.");
    descents.def_prop_ro(
        "devices",
        [](Interruptible<Descents>& self) {
            return owned<std::uint8_t, 2>({self.devices.begin(), self.devices.end()},
                                          {self.ticks.size(), std::size_t(self.supernodes)});
        },
        nb::rv_policy::automatic,
        "[start, supernode]");
    def_array(descents, "ticks", &Descents::ticks, "[start]; -1 if it cannot run");
    def_array(descents, "moves", &Descents::moves, "[start]; moves that were tried");
}

}  // namespace

void bind_balance(nb::module_& module) {
    bind_results(module);
    constexpr double no_limit = std::numeric_limits<double>::infinity();
    module.def(
        "balance",
        [](const Problem& problem, const Vector<std::int32_t>& node_of, const std::string& load,
           const DeviceArray<2>& starts, int restarts, std::uint64_t seed, std::int64_t moves, double seconds,
           const Vector<std::int64_t>& room_bytes, int threads) {
            check_few_devices(problem, "balance");
            const LoadKind kind = parse_load(load);
            const Supernodes nodes(problem, vector(node_of), kind, optional(room_bytes));
            const Devices given("starts", starts);
            const Starts rows = rows_of(nodes, starts, given);
            return without_gil_or_loss(
                [&] { return balance(nodes, rows, restarts, seed, {moves, seconds}, workers(threads)); });
        },
        "problem"_a, "node_of"_a.noconvert(), nb::kw_only(), "load"_a, "starts"_a.noconvert(), "restarts"_a = 4,
        "seed"_a = 0, "moves"_a, "seconds"_a = no_limit, "room_bytes"_a.noconvert().none() = nb::none(),
        "threads"_a = 0,
        "The least largest load that annealing finds within room_bytes.");
    module.def(
        "descend",
        [](const Problem& problem, const Vector<std::int32_t>& node_of, const std::string& load,
           const DeviceArray<2>& starts, const Vector<std::uint8_t>& targets, double least_gain,
           std::int64_t moves, double seconds, int threads) {
            check_few_devices(problem, "descend");
            const Supernodes nodes(problem, vector(node_of), parse_load(load), {});
            const Devices given("starts", starts);
            const Starts rows = rows_of(nodes, starts, given);
            return without_gil_or_loss([&] {
                return descend(nodes, rows, vector(targets), least_gain, {moves, seconds}, workers(threads));
            });
        },
        "problem"_a, "node_of"_a.noconvert(), nb::kw_only(), "load"_a, "starts"_a.noconvert(),
        "targets"_a.noconvert(), "least_gain"_a, "moves"_a, "seconds"_a = no_limit, "threads"_a = 0,
        "Makes the best single moves to `targets` from every start, whatever fits.");
}

}  // namespace stead::bindings
