// The problem: checks of shapes, nothing else.
#include "base/problem.h"

#include "bindings/border.h"

namespace stead::bindings {

void bind_problem(nb::module_& module) {
    nb::class_<Problem>(module, "Problem", "Checked, immutable arrays of one placement problem.")
        .def(
            "__init__",
            [](Problem* self, const Matrix<double>& seconds, const Matrix<std::int64_t>& workspace_bytes,
               const Vector<std::int32_t>& tensor_first, const Vector<std::int64_t>& tensor_bytes,
               const Vector<std::uint8_t>& tensor_kept, const Vector<std::int32_t>& consumer_first,
               const Vector<std::int32_t>& consumer, const Vector<std::int64_t>& weight_bytes,
               const Vector<std::int32_t>& weight_user_first, const Vector<std::int32_t>& weight_user,
               const Matrix<double>& latency_seconds, const Matrix<double>& bytes_per_second,
               const Matrix<double>& gap_seconds, const Matrix<std::int32_t>& channel,
               const Vector<std::int64_t>& memory_bytes, const Vector<double>& tensor_seconds,
               const Matrix<std::int32_t>& hops, const Vector<std::uint8_t>& phase, const Vector<std::uint8_t>& host,
               int routing, const Matrix<double>& host_latency_seconds, const Matrix<double>& host_bytes_per_second,
               const Vector<DeviceIndex>& column) {
                const std::size_t n = seconds.shape(0), columns = seconds.shape(1);
                const std::size_t k = column.is_valid() ? column.size() : columns;
                new (self) Problem(ProblemArrays{
                    .operators = static_cast<std::int64_t>(n),
                    .devices = static_cast<std::int64_t>(k),
                    .seconds = matrix("seconds", seconds, n, columns),
                    .workspace_bytes = matrix("workspace_bytes", workspace_bytes, n, columns),
                    .column = optional(column),
                    .tensor_first = vector(tensor_first),
                    .tensor_bytes = vector(tensor_bytes),
                    .tensor_kept = vector(tensor_kept),
                    .consumer_first = vector(consumer_first),
                    .consumer = vector(consumer),
                    .weight_bytes = vector(weight_bytes),
                    .weight_user_first = vector(weight_user_first),
                    .weight_user = vector(weight_user),
                    .latency_seconds = matrix("latency_seconds", latency_seconds, k, k),
                    .bytes_per_second = matrix("bytes_per_second", bytes_per_second, k, k),
                    .gap_seconds = matrix("gap_seconds", gap_seconds, k, k),
                    .channel = matrix("channel", channel, k, k),
                    .memory_bytes = vector(memory_bytes),
                    .tensor_seconds = vector(tensor_seconds),
                    .hops = matrix("hops", hops, k, k),
                    .phase = vector(phase),
                    .host = vector(host),
                    .routing = routing,
                    .host_latency_seconds = matrix("host_latency_seconds", host_latency_seconds, 2, k),
                    .host_bytes_per_second = matrix("host_bytes_per_second", host_bytes_per_second, 2, k),
                });
            },
            nb::kw_only(), "seconds"_a.noconvert(), "workspace_bytes"_a.noconvert(), "tensor_first"_a.noconvert(),
            "tensor_bytes"_a.noconvert(), "tensor_kept"_a.noconvert(), "consumer_first"_a.noconvert(),
            "consumer"_a.noconvert(), "weight_bytes"_a.noconvert(), "weight_user_first"_a.noconvert(),
            "weight_user"_a.noconvert(), "latency_seconds"_a.noconvert(), "bytes_per_second"_a.noconvert(),
            "gap_seconds"_a.noconvert(), "channel"_a.noconvert(), "memory_bytes"_a.noconvert(),
            "tensor_seconds"_a.noconvert(), "hops"_a.noconvert(), "phase"_a.noconvert(), "host"_a.noconvert(),
            "routing"_a, "host_latency_seconds"_a.noconvert(), "host_bytes_per_second"_a.noconvert(),
            "column"_a.noconvert().none() = nb::none())
        .def_ro("operators", &Problem::operators)
        .def_ro("tensors", &Problem::tensors)
        .def_ro("devices", &Problem::devices)
        .def_ro("packed_keys", &Problem::packed_keys, "One 64-bit key holds any (time, operator).")
        .def_ro("single_sender_channels", &Problem::single_sender_channels, "No two devices send on one channel.")
        .def_ro("carries", &Problem::carries, "Some devices carry tensors to others themselves.");
}

}  // namespace stead::bindings
