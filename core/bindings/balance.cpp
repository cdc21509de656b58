// Searches for the least largest load: checks of shapes, conversions, nothing else.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <string>
#include <tuple>

#include "bindings/border.h"
#include "search/balance.h"
#include "search/supernodes.h"

namespace stead::bindings {
namespace {

Starts rows_of(const Supernodes& nodes, const Matrix<std::uint8_t>& starts) {
    matrix("starts", starts, starts.shape(0), nodes.count());
    return {starts.data(), static_cast<std::int64_t>(starts.shape(0))};
}

std::span<const std::int64_t> optional(const Vector<std::int64_t>& given) {
    return given.is_valid() ? vector(given) : std::span<const std::int64_t>();
}

}  // namespace

void bind_balance(nb::module_& module) {
    constexpr double no_limit = std::numeric_limits<double>::infinity();
    module.def(
        "balance",
        [](const Problem& problem, const Vector<std::int32_t>& node_of, const std::string& load,
           const Matrix<std::uint8_t>& starts, int restarts, std::uint64_t seed, std::int64_t moves, double seconds,
           const Vector<std::int64_t>& room_bytes, int threads) {
            const LoadKind kind = parse_load(load);
            const Supernodes nodes(problem, vector(node_of), kind, optional(room_bytes));
            const Starts rows = rows_of(nodes, starts);
            auto [best, raised] = without_gil_or_loss(
                [&] { return balance(nodes, rows, restarts, seed, {moves, seconds}, workers(threads)); });
            const std::size_t n = best.devices.size();
            return std::make_tuple(owned<std::uint8_t, 1>(std::move(best.devices), {n}), best.value, best.moves,
                                   std::move(best.trail), std::move(raised));
        },
        "problem"_a, "node_of"_a.noconvert(), nb::kw_only(), "load"_a, "starts"_a.noconvert(), "restarts"_a = 4,
        "seed"_a = 0, "moves"_a, "seconds"_a = no_limit, "room_bytes"_a.noconvert().none() = nb::none(),
        "threads"_a = 0,
        "(devices, ticks, moves, trail, raised) of the least largest load that annealing finds; ticks are -1 if "
        "nothing it met can run within room_bytes. The trail is (moves before, ticks); `raised` is what a signal "
        "handler raised, which ends the search.");
    module.def(
        "descend",
        [](const Problem& problem, const Vector<std::int32_t>& node_of, const std::string& load,
           const Matrix<std::uint8_t>& starts, const Vector<std::uint8_t>& targets, double least_gain,
           std::int64_t moves, double seconds, int threads) {
            const Supernodes nodes(problem, vector(node_of), parse_load(load), {});
            const Starts rows = rows_of(nodes, starts);
            const auto [found, raised] = without_gil_or_loss([&] {
                return descend(nodes, rows, vector(targets), least_gain, {moves, seconds}, workers(threads));
            });
            std::vector<std::uint8_t> devices;
            for (const Balanced& one : found) devices.insert(devices.end(), one.devices.begin(), one.devices.end());
            const std::array<std::size_t, 2> shape = {found.size(), static_cast<std::size_t>(nodes.count())};
            return std::make_tuple(owned<std::uint8_t, 2>(std::move(devices), shape),
                                   column<Ticks>(found, [](const Balanced& one) { return one.value; }),
                                   column<std::int64_t>(found, [](const Balanced& one) { return one.moves; }), raised);
        },
        "problem"_a, "node_of"_a.noconvert(), nb::kw_only(), "load"_a, "starts"_a.noconvert(),
        "targets"_a.noconvert(), "least_gain"_a, "moves"_a, "seconds"_a = no_limit, "threads"_a = 0,
        "(devices, ticks, moves, raised) for every start, each after the best single moves to `targets`, whatever "
        "fits; `raised` as above.");
}

}  // namespace stead::bindings
