// Local search: checks of shapes, conversions, nothing else.
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/placement.h"
#include "bindings/border.h"
#include "search/decoder.h"
#include "search/local_search.h"
#include "search/sends.h"
#include "sim/order_checks.h"

namespace stead::bindings {
namespace {

template <class T>
std::vector<T> copied(const Vector<T>& array, std::vector<T> otherwise) {
    return array.is_valid() ? std::vector<T>(array.data(), array.data() + array.size()) : std::move(otherwise);
}

void bind_result(nb::module_& module) {
    nb::class_<TrailPoint>(module, "TrailPoint", "How good the best was after so much.")
        .def_ro("spent", &TrailPoint::spent, "Work of a local search; moves of annealing.")
        .def_ro("ticks", &TrailPoint::ticks);
    nb::class_<SearchState> state(module, "SearchState", "Devices and an order that belong together.");
    def_devices(state, "devices", &SearchState::devices, "[operator]");
    def_array(state, "order", &SearchState::order, "Operators, topological.");
    state.def_prop_ro(
        "sends", [](const SearchState& self) { return static_cast<int>(self.sends); },
        "Which tensor a channel sends first: 0 by producers, 1 by first readers.");
    state.def_ro("ticks", &SearchState::ticks);
    nb::class_<MoveTally>(module, "MoveTally", "What moves of one kind came to.")
        .def_ro("name", &MoveTally::name)
        .def_ro("tried", &MoveTally::tried)
        .def_ro("kept", &MoveTally::kept)
        .def_ro("work", &MoveTally::work, "Operators decoded or looked at, and moves.")
        .def_ro("gain", &MoveTally::gain, "By what share each one shortened its schedule, all together.");
    bind_interruptible<SearchResult>(module, "SearchResult", "What a local search has found.")
        .def_ro("pool", &SearchResult::pool, "Distinct states, best first.")
        .def_ro("moves", &SearchResult::moves, "Moves that were tried.")
        .def_ro("work", &SearchResult::work, "Operators decoded, and moves.")
        .def_ro("trail", &SearchResult::trail, "One point per round.")
        .def_ro("kinds", &SearchResult::kinds, "What moves of each kind came to.");
}

/// Makespans after single changes, each made to what the ones before left; see the docstring below.
std::vector<Ticks> decode_moves(const Problem& problem, std::span<const DeviceIndex> placement,
                                std::span<const std::int32_t> order, std::span<const std::int32_t> operators,
                                std::span<const DeviceIndex> targets, std::span<const std::uint8_t> kept,
                                bool by_reader, std::int32_t first, std::int32_t last, Ticks cutoff, Ticks patience) {
    if (std::ssize(placement) != problem.operators)
        fail("placement needs ", problem.operators, " entries, got ", placement.size());
    if (operators.size() != targets.size() || operators.size() != kept.size())
        fail("operators, targets and kept need the same length, got ", operators.size(), ", ", targets.size(), " and ",
             kept.size());
    check_placement(problem, placement.data());
    OrderCheck(problem).topological(order);
    if (find_obstacle(problem, placement.data()).status != Status::ok) fail("the placement cannot run");
    if (by_reader) check_by_reader(problem);
    const DecodeTables tables(problem);
    Decoder decoder(problem, tables);
    decoder.load(placement.data(), order.data(), by_reader ? Sends::by_reader : Sends::by_producer);
    if (first < 0 || first >= last) fail("a window needs 0 <= first < last, got ", first, " and ", last);
    if (first > 0 || last < problem.operators) decoder.open(first, std::min(last, problem.operators));
    std::vector<Ticks> ticks;
    for (std::size_t i = 0; i < operators.size(); ++i) {
        const std::int32_t v = operators[i];
        if (v < 0 || v >= problem.operators || targets[i] >= problem.devices)
            fail("move ", i, ": no operator ", v, " or no device ", +targets[i]);
        if (decoder.position(v) >= decoder.last()) fail("move ", i, ": operator ", v, " stands behind the window");
        if (problem.duration[std::int64_t{v} * problem.devices + targets[i]] == impossible) {
            ticks.push_back(-1);
            continue;
        }
        decoder.place(v, targets[i]);
        const Ticks value = decoder.evaluate(cutoff, patience);
        ticks.push_back(value == never ? -1 : value);
        if (kept[i] && value != never)
            decoder.keep();
        else
            decoder.drop();
    }
    return ticks;
}

}  // namespace

void bind_search(nb::module_& module) {
    bind_result(module);
    module.def(
        "search",
        [](const Problem& problem, const Vector<std::int32_t>& unit_of, const DeviceArray<2>& starts,
           const Matrix<std::int32_t>& start_orders, const Vector<std::uint8_t>& start_sends,
           std::int64_t budget, double seconds, std::uint64_t seed,
           int threads, int streams, int rounds, int pool, bool climbs, double warmth, const Vector<std::int64_t>& held_bytes,
           const Vector<std::int64_t>& room_bytes) {
            check_few_devices(problem, "search");
            const Devices devices("starts", starts);
            const std::size_t rows = starts.shape(0), n = problem.operators;
            check_rows("starts", starts, rows, n);
            const std::vector<std::uint8_t> sends = copied(start_sends, std::vector<std::uint8_t>(rows));
            const SearchStarts given{.rows = static_cast<std::int64_t>(rows),
                                     .devices = devices.all(),
                                     .orders = matrix("start_orders", start_orders, rows, n),
                                     .sends = sends};
            const SearchOptions options{.budget = budget,
                                        .seconds = seconds,
                                        .seed = seed,
                                        .streams = streams,
                                        .rounds = rounds,
                                        .pool = pool,
                                        .climbs = climbs,
                                        .warmth = warmth};
            ResidentLimits limits{.held_bytes = copied(held_bytes, std::vector<std::int64_t>(n)),
                              .room_bytes = copied(room_bytes, problem.memory_bytes)};
            return without_gil_or_loss([&] {
                return search(problem, vector(unit_of), given, std::move(limits), options, workers(threads));
            });
        },
        "problem"_a, "unit_of"_a.noconvert(), nb::kw_only(), "starts"_a.noconvert(), "start_orders"_a.noconvert(),
        "start_sends"_a.noconvert().none() = nb::none(), "budget"_a, "seconds"_a, "seed"_a = 0, "threads"_a = 0,
        "streams"_a = 2, "rounds"_a = 8, "pool"_a = 8,
        "climbs"_a = false, "warmth"_a = 0.002, "held_bytes"_a.noconvert().none() = nb::none(),
        "room_bytes"_a.noconvert().none() = nb::none(),
        "Local search under policy program_order. The same for any number of threads unless `seconds` run out or a "
        "signal handler raises something.");
    module.def(
        "decode_moves",
        [](const Problem& problem, const DeviceArray<1>& placement, const Vector<std::int32_t>& order,
           const Vector<std::int32_t>& operators, const DeviceArray<1>& targets,
           const Vector<std::uint8_t>& kept, bool by_reader, std::int32_t first, std::int32_t last,
           Ticks cutoff_ticks, Ticks patience_ticks) {
            check_few_devices(problem, "decode_moves");
            const Devices before("placement", placement), after("targets", targets);
            if (patience_ticks < 0) fail("patience_ticks must be at least 0, got ", patience_ticks);
            return column(without_gil([&] {
                return decode_moves(problem, before.all(), vector(order), vector(operators), after.all(),
                                    vector(kept), by_reader, first, last, std::min(cutoff_ticks, never - 1), patience_ticks);
            }));
        },
        "problem"_a, nb::kw_only(), "placement"_a.noconvert(), "order"_a.noconvert(), "operators"_a.noconvert(),
        "targets"_a.noconvert(), "kept"_a.noconvert(), "by_reader"_a = false, "first"_a = 0,
        "last"_a = INT32_MAX, "cutoff_ticks"_a = never, "patience_ticks"_a = never,
        "[move]; ticks under policy program_order once each operator is on its target, -1 where it cannot be or the "
        "cutoff is exceeded. Moves that are not kept are taken back. Channels send in the order of producers or of "
        "first readers; operators of moves stand before position `last`, and most of what is kept from `first` on. With "
        "`patience_ticks` moves are given up, some of them in vain, that fall behind the cutoff by more than that.");
    module.def(
        "list_sends",
        [](const Problem& problem, const DeviceArray<1>& placement, const Vector<std::int32_t>& order) {
            check_few_devices(problem, "list_sends");
            const Devices devices("placement", placement);
            return column(without_gil([&] {
                if (std::ssize(devices.all()) != problem.operators)
                    fail("placement needs ", problem.operators, " entries, got ", placement.size());
                check_placement(problem, devices.data());
                OrderCheck(problem).topological(vector(order));
                return list_sends(problem, devices.all(), vector(order));
            }));
        },
        "problem"_a, nb::kw_only(), "placement"_a.noconvert(), "order"_a.noconvert(),
        "The order with every transfer listed before the operator that needs it first, for program_order with sends.");
}

}  // namespace stead::bindings
