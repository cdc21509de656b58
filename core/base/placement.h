// What can be said about a placement before anything is simulated.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/device_set.h"
#include "base/problem.h"

namespace stead {

/// How the scoring of a placement ended. Everything but `ok` is an answer, not an error.
enum class Status : std::uint8_t {
    ok = 0,
    memory = 1,       // some device is over its capacity
    unsupported = 2,  // an operator sits on a device that cannot run it
    unreachable = 3,  // a tensor has no way to a reader
    cut = 4,          // longer than the cutoff
    cyclic = 5,       // calls of an offloaded graph wait for each other
};

/// Why a placement cannot run at all; fields that do not apply are -1.
struct Obstacle {
    Status status = Status::ok;
    std::int32_t op = -1;      // unsupported: the operator
    std::int32_t device = -1;  // and the device
    std::int32_t source = -1;  // unreachable: the two devices
    std::int32_t target = -1;
    std::int32_t tensor = -1;  // and the tensor
};

/// Devices that a caller holds as bytes; here and not at the border, which is compiled for size.
std::vector<DeviceIndex> widened(std::span<const std::uint8_t> devices);

/// Throws std::invalid_argument when there are more devices than masks have bits; `what` cannot take so many.
void check_few_devices(const Problem& problem, const char* what);

/// Throws std::invalid_argument when an operator is on a device that does not exist.
void check_placement(const Problem& problem, const DeviceIndex* placement);

/// The first operator that cannot run where it is.
Obstacle find_unsupported(const Problem& problem, const DeviceIndex* placement);

/// The first operator that cannot run where it is; without one, the first tensor that a direct link cannot bring to
/// one of its readers.
Obstacle find_obstacle(const Problem& problem, const DeviceIndex* placement);

/// Calls visit(d, i) for each device d other than `source` that one of the readers consumer[begin] .. consumer[end - 1] is
/// on, in the order of the first readers; i is the first reader's entry. `seen` is an empty set.
template <class Devices, class Visit>
void for_each_target_of(Devices seen, const DeviceIndex* placement, const std::int32_t* consumer, std::int32_t begin,
                        std::int32_t end, int source, Visit visit) {
    seen.add(source);
    for (std::int32_t i = begin; i < end; ++i) {
        const int d = placement[consumer[i]];
        if (seen.has(d)) continue;
        seen.add(d);
        visit(d, i);
    }
}

/// The same for all readers of tensor `t`.
template <class Visit>
void for_each_target(const Problem& problem, const DeviceIndex* placement, std::int32_t t, int source, Visit visit) {
    with_device_set(problem, [&](auto none) {
        for_each_target_of(none, placement, problem.consumer.data(), problem.consumer_first[t],
                           problem.consumer_first[t + 1], source, visit);
    });
}

/// Calls visit(reader) for each reader of tensor `t` on device `d`, from entry `i` of `consumer` on.
template <class Visit>
void for_each_reader_on(const Problem& problem, const DeviceIndex* placement, std::int32_t t, int d, std::int32_t i,
                        Visit visit) {
    for (; i < problem.consumer_first[t + 1]; ++i)
        if (placement[problem.consumer[i]] == d) visit(problem.consumer[i]);
}

/// The first reader of tensor `t` on device `d` as an entry of `consumer`; -1 without one.
std::int32_t first_reader_on(const Problem& problem, const DeviceIndex* placement, std::int32_t t, int d);

/// Bytes of the weights on each device, into `bytes` [device].
void resident_weights(const Problem& problem, const DeviceIndex* placement, std::int64_t* bytes);

}  // namespace stead
