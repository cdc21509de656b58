// The order in which channels send tensors: the part of a schedule that devices and the order of operators leave open.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/problem.h"

namespace stead {

/// Which of the tensors that wait for a channel it sends first.
enum class Sends : std::uint8_t {
    by_producer,  // a tensor is booked as soon as its producer has run
    by_reader,    // when its first reader on the other device comes up: what is read soon passes what is not; not where
                  // devices carry tensors themselves, which they do right behind the producer
};

/// Throws std::invalid_argument where readers cannot decide what is sent first.
void check_by_reader(const Problem& problem);

/// An order of operators with each transfer by reader before the operator that needs it first, as policy program_order
/// takes it with `sends`: transfers are items operators + tensor * devices + device. Both have been checked.
std::vector<std::int32_t> list_sends(const Problem& problem, std::span<const DeviceIndex> placement,
                                     std::span<const std::int32_t> order);

}  // namespace stead
