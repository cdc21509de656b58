// One call that simulates, for tests.
#pragma once

#include "sim/simulate.h"
#include "tests/draft.h"

namespace stead {

inline Schedule run(const Problem& problem, const Row& placement, Policy policy = Policy::fifo, const Order& order = {},
             const Order& transfer_order = {}, bool sends = false) {
    return simulate(problem, placement, policy, {order, transfer_order}, sends, MemoryMode::peak);
}

}  // namespace stead
