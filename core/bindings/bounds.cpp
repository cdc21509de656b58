// Bounds: what no placement can beat.

#include <algorithm>

#include "base/placement.h"
#include "bindings/border.h"
#include "bounds/area.h"
#include "bounds/block_chain.h"
#include "bounds/critical_path.h"
#include "bounds/cut_path.h"
#include "bounds/windows.h"

namespace stead::bindings {

namespace {

/// Checks what the sums of the core rely on: nothing negative, and no sum beyond 2^62.
Work checked_work(const Matrix<std::int64_t>& ticks, const Vector<std::int64_t>& bytes,
                  const Vector<std::int64_t>& capacity_bytes, const Vector<std::uint8_t>& busy) {
    const std::size_t rows = ticks.shape(0), devices = ticks.shape(1);
    if (bytes.size() != rows) fail("bytes needs ", rows, " values, got ", bytes.size());
    if (capacity_bytes.size() != devices)
        fail("capacity_bytes needs ", devices, " values, got ", capacity_bytes.size());
    if (busy.size() != devices) fail("busy needs ", devices, " values, got ", busy.size());
    if (devices < 1 || devices > max_devices) fail("there must be 1 to ", max_devices, " devices, got ", devices);
    Wide time = 0, memory = 0;
    for (std::size_t row = 0; row < rows; ++row) {
        Ticks longest = 0;
        for (std::size_t d = 0; d < devices; ++d) {
            const Ticks own = ticks.data()[row * devices + d];
            if (own < impossible) fail("ticks[", row, ", ", d, "] is negative: ", own);
            longest = std::max(longest, own);
        }
        if (bytes.data()[row] < 0) fail("bytes[", row, "] is negative: ", bytes.data()[row]);
        time += longest;
        memory += bytes.data()[row];
    }
    if (time >= never / 2 || memory >= never / 2) fail("ticks or bytes add up to 2^62 or more");
    for (std::size_t d = 0; d < devices; ++d)
        if (capacity_bytes.data()[d] < 0) fail("capacity_bytes[", d, "] is negative: ", capacity_bytes.data()[d]);
    return {.rows = rows,
            .devices = static_cast<int>(devices),
            .ticks = {ticks.data(), ticks.size()},
            .bytes = vector(bytes),
            .capacity_bytes = vector(capacity_bytes),
            .busy = vector(busy)};
}

void check_window_options(const Problem& problem, const WindowOptions& options) {
    const std::size_t count = problem.operators;
    if (options.bytes.size() != count) fail("bytes needs ", count, " values, got ", options.bytes.size());
    if (options.repeat.size() != count) fail("repeat needs ", count, " values, got ", options.repeat.size());
    std::int64_t most = 1;
    Wide memory = 0;
    for (std::size_t v = 0; v < count; ++v) {
        if (options.repeat[v] < 0) fail("repeat[", v, "] is negative: ", options.repeat[v]);
        if (options.bytes[v] < 0) fail("bytes[", v, "] is negative: ", options.bytes[v]);
        most = std::max<std::int64_t>(most, options.repeat[v]);
        memory += options.bytes[v];
    }
    if (memory >= never / 2) fail("bytes add up to 2^62 or more");
    if (problem.horizon > never / 2 / most) fail("a step of ", most, " repetitions may take 2^62 picoseconds or more");
}

void bind_work(nb::module_& module) {
    module.def(
        "area_bound",
        [](const Matrix<std::int64_t>& ticks, const Vector<std::int64_t>& bytes,
           const Vector<std::int64_t>& capacity_bytes, const Vector<std::uint8_t>& busy, double seconds) {
            const Work work = checked_work(ticks, bytes, capacity_bytes, busy);
            Watch watch(checked_seconds(seconds), workers(1));
            return without_gil([&] { return area(work, true, &watch).ticks; });
        },
        nb::kw_only(), "ticks"_a.noconvert(), "bytes"_a.noconvert(), "capacity_bytes"_a.noconvert(), "busy"_a.noconvert(),
        "seconds"_a = INFINITY,
        "Ticks that the busiest device works at least; ticks are [row, device], -1 where a row may not run.");
    module.def(
        "total_bound",
        [](const Matrix<std::int64_t>& ticks, const Vector<std::int64_t>& bytes,
           const Vector<std::int64_t>& capacity_bytes, const Vector<std::uint8_t>& busy, double seconds) {
            const Work work = checked_work(ticks, bytes, capacity_bytes, busy);
            Watch watch(checked_seconds(seconds), workers(1));
            return without_gil([&] { return least_total(work, &watch); });
        },
        nb::kw_only(), "ticks"_a.noconvert(), "bytes"_a.noconvert(), "capacity_bytes"_a.noconvert(), "busy"_a.noconvert(),
        "seconds"_a = INFINITY,
        "Ticks that all rows take at least one after another, when bytes must fit.");
}

void bind_windows(nb::module_& module) {
    nb::class_<WindowBounds>(module, "WindowBounds", "The longest way through an operator, and the best window.")
        .def_ro("path_ticks", &WindowBounds::path, "What lies before an operator, itself, what lies behind.")
        .def_ro("window_ticks", &WindowBounds::window, "What must happen between two moments.")
        .def_ro("head_ticks", &WindowBounds::head, "Before the window.")
        .def_ro("tail_ticks", &WindowBounds::tail, "Behind it.");
    module.def(
        "window_bounds",
        [](const Problem& problem, const Vector<std::int64_t>& bytes, const Vector<std::int32_t>& repeat, int reach,
           double seconds) {
            check_few_devices(problem, "window_bounds");
            const WindowOptions options{vector(bytes), vector(repeat), reach};
            check_window_options(problem, options);
            Watch watch(checked_seconds(seconds), workers(1));
            return without_gil([&] { return window_bounds(problem, options, watch); });
        },
        "problem"_a, nb::kw_only(), "bytes"_a.noconvert(), "repeat"_a.noconvert(), "reach"_a, "seconds"_a = INFINITY,
        "Bounds on the ticks of a step; bytes and repetitions are [operator].");
}

void bind_paths(nb::module_& module) {
    module.def(
        "earliest_finish",
        [](const Problem& problem, bool through_host) {
            check_few_devices(problem, "earliest_finish");
            const Crossing crossing = through_host ? Crossing::host : Crossing::link;
            return column(without_gil([&] { return earliest_finish(problem, crossing); }));
        },
        "problem"_a, nb::kw_only(), "through_host"_a = false,
        "[operator]; ticks before which no placement can finish it; 2**63 - 1 where none can run it.");
    module.def(
        "heaviest_path",
        [](const Problem& problem, const Vector<double>& weight) {
            if (weight.size() != static_cast<std::size_t>(problem.operators))
                fail("weight needs ", problem.operators, " values, got ", weight.size());
            return column(without_gil([&] { return heaviest_path(problem, vector(weight)); }));
        },
        "problem"_a, "weight"_a.noconvert(), "The path of greatest sum of weight, as operators in order.");
    module.def(
        "least_run_ticks",
        [](const Problem& problem, const Vector<std::int32_t>& path, bool through_host) {
            check_few_devices(problem, "least_run_ticks");
            for (const std::int32_t v : vector(path))
                if (v < 0 || v >= problem.operators) fail("operators lie in 0..", problem.operators - 1, ", got ", v);
            const Crossing crossing = through_host ? Crossing::host : Crossing::link;
            return without_gil([&] { return least_run_ticks(problem, vector(path), crossing); });
        },
        "problem"_a, "path"_a.noconvert(), nb::kw_only(), "through_host"_a = false,
        "Ticks of a path over all ways to cut it into runs on devices that hold their weights; 2**63 - 1 without one.");
}

/// Checks what a chain of blocks relies on: that every operator of a path waits for the one before.
void check_chain_options(const Problem& problem, const ChainOptions& options) {
    if (options.units.size() != static_cast<std::size_t>(problem.operators))
        fail("units needs ", problem.operators, " values, got ", options.units.size());
    if (options.most_operators < 1) fail("most_operators must be at least 1, got ", options.most_operators);
    for (std::size_t i = 0; i < options.path.size(); ++i) {
        const std::int32_t v = options.path[i];
        if (v < 0 || v >= problem.operators) fail("operators lie in 0..", problem.operators - 1, ", got ", v);
        if (i == 0) continue;
        const std::int32_t u = options.path[i - 1];
        bool waits = false;
        for (std::int32_t t = problem.tensor_first[u]; t < problem.tensor_first[u + 1]; ++t)
            waits = waits || std::binary_search(problem.consumer.begin() + problem.consumer_first[t],
                                                problem.consumer.begin() + problem.consumer_first[t + 1], v);
        if (!waits) fail("operator ", v, " of the path reads nothing of operator ", u, " before it");
    }
}

void bind_blocks(nb::module_& module) {
    module.def(
        "block_chain_bound",
        [](const Problem& problem, const Vector<std::int32_t>& path, const Vector<std::int32_t>& units, Ticks known,
           std::int64_t steps, int most_operators, double seconds) {
            check_few_devices(problem, "block_chain_bound");
            const ChainOptions options{vector(path), vector(units), most_operators, known, steps};
            check_chain_options(problem, options);
            Watch watch(checked_seconds(seconds), workers(1));
            return without_gil([&] { return block_chain_bound(problem, options, watch); });
        },
        "problem"_a, nb::kw_only(), "path"_a.noconvert(), "units"_a.noconvert(), "known"_a = 0, "steps"_a,
        "most_operators"_a = 64, "seconds"_a = INFINITY,
        "Ticks that the blocks of a path take at least one after another; beyond those that are known, if it can.");
}

}  // namespace

void bind_bounds(nb::module_& module) {
    bind_work(module);
    bind_windows(module);
    bind_paths(module);
    bind_blocks(module);
}

}  // namespace stead::bindings
