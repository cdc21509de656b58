// Repair of placements that do not fit: overfull devices hand the tail of what they run to devices with room.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "build/list_tables.h"

namespace stead {

struct Spilled {
    std::vector<DeviceIndex> devices;  // [operator]
    std::int64_t moved_units = 0;
};

/// Where operators are once units have moved from where `devices` [operator] has them. Device d gives away at least
/// `over_bytes[d]`, others take at most `room_bytes[d]`, as far as weights and outputs tell. The tail is what comes last
/// in `order` [operator]; a unit counts where its first operator is. Neighbours in it move to the same device while
/// there is room.
Spilled spill(const ListTables& tables, std::span<const DeviceIndex> devices, std::span<const std::int32_t> order,
              std::span<const std::int64_t> over_bytes, std::span<const std::int64_t> room_bytes);

}  // namespace stead
