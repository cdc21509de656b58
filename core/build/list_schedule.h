// List scheduling: devices and an order of operators, built in one pass over the graph.
//
// Every rule keeps a time line of devices and channels while it goes: an operator starts when its device is free and
// the last tensor it reads has arrived; a tensor crosses once per device and waits for its channel, or puts off what its
// device runs next if that carries it. Units (operators
// that must share a device) go where their first operator goes. What is returned is re-timed by the simulator's
// program order, in which outputs are sent right behind their producer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/problem.h"
#include "base/workers.h"
#include "build/list_tables.h"
#include "build/ranks.h"

namespace stead {

enum class ListRule {
    heft,        // highest upward rank first, where it finishes first (Topcuoglu et al. 2002)
    peft,        // like HEFT with an optimistic cost table (Arabnejad and Barbosa 2014)
    etf,         // of all that is ready what can start first (Hwang et al. 1989)
    sct,         // ETF where a device waits for the favourite child of what it ran last (Hanen and Munier 1995)
    dfs_sticky,  // depth first, where it finishes first
};

struct ListVariant {
    ListRule rule = ListRule::heft;
    double bias = 1.0;                // weight of a transfer when devices are compared: above 1 operators stay together
    Average average = Average::mean;  // of the ranks
    bool insertion = true;            // gaps between operators may be filled
    double foresight = 0.0;           // weight of what units on a device still have to run when devices are compared
    double thrift = 0.0;              // weight of time on a device that others would make better use of
};

struct ListSchedule {
    std::vector<DeviceIndex> devices;  // [operator]
    std::vector<std::int32_t> order;    // operators, topological
    Ticks ticks = -1;                   // length when operators run in this order; -1 if the placement cannot run

    static constexpr Ticks not_built = -2;  // time was up before; devices and order mean nothing then
};

/// One construction per variant; `limit_bytes` [device] is what weights and long-lived tensors may take of each device.
/// What is not finished after so many seconds is not built.
std::vector<ListSchedule> list_schedules(const ListTables& tables, std::span<const ListVariant> variants,
                                         std::span<const std::int64_t> limit_bytes, double seconds,
                                         const Workers& workers);

}  // namespace stead
