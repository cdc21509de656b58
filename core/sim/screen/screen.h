// The screen: rough program_order makespans of many placements at once, several per instruction.
//
// It decodes one fixed order for all placements, with 32-bit time. As a screen before exact simulation it is only as
// good as its order: take that from the schedule of the placement whose neighbours are screened.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/problem.h"
#include "sim/batch.h"
#include "sim/screen/kernel.h"

namespace stead {

/// Seconds of policy program_order in the topological `order` (empty: index order), within a few millionths; +inf for
/// placements that cannot run.
///
/// A row is simulated exactly instead, and more slowly, if there are more than 8 devices, if some transfers of a device
/// share a channel but not all, if devices carry tensors themselves, or if the row is so short that 32 bits would not do.
std::vector<float> screen_many(const Problem& problem, const Placements& placements,
                               std::span<const std::int32_t> order, Instructions instructions, const Workers& workers);

}  // namespace stead
