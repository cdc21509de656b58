// Problems for tests, put together operator by operator.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/problem.h"

namespace stead {

using Row = std::vector<DeviceIndex>;
using Flags = std::vector<std::uint8_t>;
using Order = std::vector<std::int32_t>;
using Times = std::vector<double>;

constexpr double inf = std::numeric_limits<double>::infinity();

/// A problem in the making: equal devices and links unless changed.
struct Draft {
    struct Tensor {
        std::int64_t bytes;
        Order readers;
        bool kept = false;
    };

    Draft(int k, const std::string& preset, double latency_us, double gigabytes_per_second, double gap_us = 0)
        : devices(k), latency(k * k, latency_us * 1e-6), speed(k * k, gigabytes_per_second * 1e9),
          gap(k * k, gap_us * 1e-6), channel(k * k), hops(k * k, 1), memory(k, std::int64_t{1} << 60), host(k, 0),
          host_latency(2 * k, 0), host_speed(2 * k, 1e9) {
        for (int s = 0; s < k; ++s)
            for (int d = 0; d < k; ++d)
                channel[s * k + d] = preset == "none"       ? -1
                                     : preset == "link"     ? s * k + d
                                     : preset == "pair"     ? std::min(s, d) * k + std::max(s, d)
                                     : preset == "sender"   ? s
                                     : preset == "receiver" ? d
                                                            : 0;
    }

    Draft& op(double us, std::vector<Tensor> tensors = {}, std::int64_t workspace_bytes = 0) {
        for (int d = 0; d < devices; ++d) {
            seconds.push_back(us * 1e-6);
            workspace.push_back(workspace_bytes);
        }
        for (const Tensor& tensor : tensors) {
            bytes.push_back(tensor.bytes);
            kept.push_back(tensor.kept);
            consumer.insert(consumer.end(), tensor.readers.begin(), tensor.readers.end());
            consumer_first.push_back(static_cast<std::int32_t>(consumer.size()));
        }
        tensor_first.push_back(static_cast<std::int32_t>(bytes.size()));
        phase.push_back(0);
        return *this;
    }

    Draft& weight(std::int64_t size, const Order& users) {
        weight_bytes.push_back(size);
        user.insert(user.end(), users.begin(), users.end());
        user_first.push_back(static_cast<std::int32_t>(user.size()));
        return *this;
    }

    ProblemArrays arrays() const {
        return {.operators = static_cast<std::int64_t>(phase.size()),
                .devices = devices,
                .seconds = seconds,
                .workspace_bytes = workspace,
                .column = {},
                .tensor_first = tensor_first,
                .tensor_bytes = bytes,
                .tensor_kept = kept,
                .consumer_first = consumer_first,
                .consumer = consumer,
                .weight_bytes = weight_bytes,
                .weight_user_first = user_first,
                .weight_user = user,
                .latency_seconds = latency,
                .bytes_per_second = speed,
                .gap_seconds = gap,
                .channel = channel,
                .memory_bytes = memory,
                .tensor_seconds = tensor_seconds,
                .hops = hops,
                .phase = phase,
                .host = host,
                .routing = routing,
                .host_latency_seconds = host_latency,
                .host_bytes_per_second = host_speed};
    }
    Problem build() const { return Problem(arrays()); }

    int devices;
    Times seconds;
    std::vector<std::int64_t> workspace;
    Order tensor_first{0};
    std::vector<std::int64_t> bytes;
    Flags kept;
    Order consumer_first{0}, consumer;
    std::vector<std::int64_t> weight_bytes;
    Order user_first{0}, user;
    Times latency, speed, gap;
    Order channel, hops;
    std::vector<std::int64_t> memory;
    Times tensor_seconds;
    Flags phase, host;
    int routing = 0;
    Times host_latency, host_speed;
};

inline Ticks ticks(double us) { return std::llround(us * 1e6); }

/// Four operators with weights of their own and shared ones.
inline Draft memory_draft() {
    return Draft(2, "link", 1, 1)
        .op(10, {{4000, {1, 2}}}, 300)
        .op(10, {{100, {3}}}, 300)
        .op(10, {{200, {3}}}, 300)
        .op(10, {{50, {}, true}}, 300)
        .weight(1000, {0})
        .weight(2000, {1})
        .weight(500, {0, 2});
}

/// l1, r1, l2 and r2 of 2 us, l1 -> l2, r1 -> r2, and a head of 1 us that reads both; a crossing takes 2.5 us.
inline Draft two_towers() {
    return Draft(2, "link", 0.5, 1)
        .op(2, {{2000, {2}}})
        .op(2, {{2000, {3}}})
        .op(2, {{2000, {4}}})
        .op(2, {{2000, {4}}})
        .op(1);
}

}  // namespace stead
