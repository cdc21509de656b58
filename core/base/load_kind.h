// What the load of a device is, for pipelines that are kept full.
#pragma once

#include <cstdint>

namespace stead {

/// How a device's compute C, received In and sent Out ticks make its load; see Throughput on the Python side.
enum class LoadKind : std::uint8_t {
    sum,      // C + In + Out
    overlap,  // max(C, In + Out)
    duplex,   // max(C, In, Out)
    fwbw,     // C + In + Out of forward and of backward apart; a placement costs max forward + max backward
};

}  // namespace stead
