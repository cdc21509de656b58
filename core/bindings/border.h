// What all bindings share: checks of shapes and conversions between numpy and the core. Each source beside it binds one
// subject; only they and this file know Python.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/load_kind.h"
#include "sim/batch.h"

namespace stead::bindings {

namespace nb = nanobind;
using namespace nb::literals;

template <class T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class T, std::size_t kAxes>
using Result = nb::ndarray<nb::numpy, T, nb::ndim<kAxes>, nb::c_contig, nb::device::cpu>;

template <class T>
std::span<const T> vector(const Vector<T>& array) {
    return {array.data(), array.size()};
}

template <class T>
std::span<const T> matrix(const char* name, const Matrix<T>& array, std::size_t rows, std::size_t columns) {
    if (array.shape(0) != rows || array.shape(1) != columns)
        fail(name, " needs shape (", rows, ", ", columns, "), got (", array.shape(0), ", ", array.shape(1), ")");
    return {array.data(), array.size()};
}

/// Hands the memory of `values` to numpy; a const T makes the array read-only.
template <class T, std::size_t kAxes>
Result<T, kAxes> owned(std::vector<std::remove_const_t<T>> values, const std::array<std::size_t, kAxes>& shape) {
    auto* const kept = new std::vector(std::move(values));
    const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<decltype(kept)>(p); });
    return Result<T, kAxes>(kept->data(), kAxes, shape.data(), owner);
}

/// Runs `call` without the interpreter's lock, which must be held to build its result for Python.
template <class Call>
auto without_gil(Call call) {
    try {
        const nb::gil_scoped_release release;
        return call();
    } catch (const Interrupted&) {
        throw nb::python_error();  // set by the signal handler
    }
}

/// The same for a search that has a result also where a signal handler raises: (result, what was raised or None).
template <class Call>
auto without_gil_or_loss(Call call) {
    auto result = without_gil(call);
    nb::object raised = nb::none();
    if (PyErr_Occurred()) raised = nb::borrow(nb::python_error().value());
    return std::make_pair(std::move(result), std::move(raised));
}

inline Workers workers(int threads) {
    return {threads, [] {
                const nb::gil_scoped_acquire acquire;
                return PyErr_CheckSignals() != 0;
            }};
}

inline double checked_seconds(double seconds) {
    if (std::isnan(seconds)) fail("seconds must be a number");
    return seconds;
}

/// A read-only array with a value for each of `items`.
template <class T, class Items, class Value>
Result<const T, 1> column(const Items& items, Value value) {
    std::vector<T> values;
    values.reserve(items.size());
    for (const auto& item : items) values.push_back(static_cast<T>(value(item)));
    const std::array<std::size_t, 1> shape = {values.size()};
    return owned<const T, 1>(std::move(values), shape);
}

template <class T>
Result<const T, 1> column(const std::vector<T>& values) {
    return column<T>(values, [](T value) { return value; });
}

inline LoadKind parse_load(const std::string& name) {
    if (name == "sum") return LoadKind::sum;
    if (name == "overlap") return LoadKind::overlap;
    if (name == "duplex") return LoadKind::duplex;
    if (name == "fwbw") return LoadKind::fwbw;
    fail("load must be sum, overlap, duplex or fwbw, got '", name, "'");
}

/// Searches for the least largest load.
void bind_balance(nb::module_& module);

/// Constructions: list scheduling and the repair of what does not fit.
void bind_construct(nb::module_& module);

/// Lower bounds.
void bind_bounds(nb::module_& module);

/// Exact solvers: reduced instances and their dynamic programs.
void bind_exact(nb::module_& module);

/// Local search on devices and orders.
void bind_search(nb::module_& module);

}  // namespace stead::bindings
