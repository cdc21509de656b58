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
#include "base/placement.h"
#include "base/problem.h"
#include "base/workers.h"
#include "build/ranks.h"

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

/// Devices as callers hold them: uint8, or uint16 where a cluster needs it. The core reads DeviceIndex.
template <std::size_t kAxes>
using DeviceArray = nb::ndarray<nb::ro, nb::ndim<kAxes>, nb::c_contig, nb::device::cpu>;

template <class... Traits>
void check_device_type(const char* name, const nb::ndarray<Traits...>& array) {
    if (array.dtype() != nb::dtype<DeviceIndex>() && array.dtype() != nb::dtype<std::uint8_t>())
        throw nb::type_error((std::string(name) + " must be an array of uint8 or uint16").c_str());
}

/// Devices as the core reads them: the caller's memory, or a widened copy of it.
class Devices {
public:
    template <class... Traits>
    Devices(const char* name, const nb::ndarray<Traits...>& array) {
        check_device_type(name, array);
        if (array.dtype() == nb::dtype<DeviceIndex>()) {
            read_ = {static_cast<const DeviceIndex*>(array.data()), array.size()};
        } else {
            widened_ = widened({static_cast<const std::uint8_t*>(array.data()), array.size()});
            read_ = widened_;
        }
    }
    Devices(const Devices&) = delete;
    Devices& operator=(const Devices&) = delete;

    std::span<const DeviceIndex> all() const { return read_; }
    const DeviceIndex* data() const { return read_.data(); }

private:
    std::vector<DeviceIndex> widened_;
    std::span<const DeviceIndex> read_;
};

/// Checks the shape of rows of devices.
inline void check_rows(const char* name, const DeviceArray<2>& array, std::size_t rows, std::size_t columns) {
    if (array.shape(0) != rows || array.shape(1) != columns)
        fail(name, " needs shape (", rows, ", ", columns, "), got (", array.shape(0), ", ", array.shape(1), ")");
}

/// A vector in a bound result as an array that shares its memory: the result lives as long as the array does.
template <class T, std::size_t kAxes>
Result<T, kAxes> shared(std::vector<T>& values, const std::array<std::size_t, kAxes>& shape) {
    return Result<T, kAxes>(values.data(), kAxes, shape.data());
}

template <class T>
Result<T, 1> shared(std::vector<T>& values) {
    return shared<T, 1>(values, {values.size()});
}

/// Binds a vector in a result as a field with one axis.
template <class Found, class Owner, class T>
void def_array(nb::class_<Found>& bound, const char* name, std::vector<T> Owner::*field, const char* doc) {
    bound.def_prop_ro(name, [field](Found& self) { return shared(self.*field); }, doc);
}

/// Binds devices in a result of what takes few of them, as callers hold those.
template <class Found, class Owner>
void def_devices(nb::class_<Found>& bound, const char* name, std::vector<DeviceIndex> Owner::*field, const char* doc) {
    bound.def_prop_ro(
        name,
        [field](Found& self) {
            const std::vector<DeviceIndex>& wide = self.*field;
            return owned<std::uint8_t, 1>({wide.begin(), wide.end()}, {wide.size()});
        },
        nb::rv_policy::automatic, doc);
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

/// What a search has found, also where a signal handler raised something and so ended it.
template <class Found>
struct Interruptible : Found {
    nb::object raised;  // or None
};

/// The same for a search, which has a result even where a signal handler raises.
template <class Call>
auto without_gil_or_loss(Call call) {
    Interruptible<decltype(call())> found{without_gil(call), nb::none()};
    if (PyErr_Occurred()) found.raised = nb::borrow(nb::python_error().value());
    return found;
}

template <class Found>
int visit_raised(PyObject* self, visitproc visit, void* arg) noexcept {
    Py_VISIT(Py_TYPE(self));
    if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<Found>(self)->raised.ptr());
    return 0;
}

template <class Found>
int clear_raised(PyObject* self) noexcept {
    nb::inst_ptr<Found>(self)->raised.reset();
    return 0;
}

/// An exception that is raised again knows the frame that holds what was found: the garbage collector must see that.
template <class Found>
inline PyType_Slot raised_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(visit_raised<Found>)},
                                     {Py_tp_clear, reinterpret_cast<void*>(clear_raised<Found>)},
                                     {0, nullptr}};

template <class Found>
nb::class_<Interruptible<Found>> bind_interruptible(nb::module_& module, const char* name, const char* doc) {
    using Bound = Interruptible<Found>;
    return nb::class_<Bound>(module, name, doc, nb::type_slots(raised_slots<Bound>))
        .def_ro("raised", &Bound::raised, "What a signal handler raised, which ends the search; None without it.");
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

/// The values of an array that may be missing; the others are empty then.
template <class T>
std::span<const T> optional(const Vector<T>& given) {
    return given.is_valid() ? vector(given) : std::span<const T>();
}

inline LoadKind parse_load(const std::string& name) {
    if (name == "sum") return LoadKind::sum;
    if (name == "overlap") return LoadKind::overlap;
    if (name == "duplex") return LoadKind::duplex;
    if (name == "fwbw") return LoadKind::fwbw;
    fail("load must be sum, overlap, duplex or fwbw, got '", name, "'");
}

inline Average parse_average(const std::string& name) {
    if (name == "mean") return Average::mean;
    if (name == "min") return Average::min;
    if (name == "best") return Average::best;
    fail("average must be mean, min or best, got '", name, "'");
}

/// The problem.
void bind_problem(nb::module_& module);

/// Simulation of one placement and of many.
void bind_sim(nb::module_& module);

/// The simulator that Placeto was published with.
void bind_placeto(nb::module_& module);

/// Lower bounds.
void bind_bounds(nb::module_& module);

/// Constructions: list scheduling and the repair of what does not fit.
void bind_build(nb::module_& module);

/// Walks: list scheduling by rules that can be learned.
void bind_walk(nb::module_& module);

/// Reduced instances of pipelines and their exact dynamic programs.
void bind_stages(nb::module_& module);

/// Local search on devices and orders.
void bind_search(nb::module_& module);

/// Searches for the least largest load.
void bind_balance(nb::module_& module);

}  // namespace stead::bindings
