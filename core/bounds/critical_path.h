// Longest paths that no placement can shorten: lower bounds on latency.
#pragma once

#include <vector>

#include "base/problem.h"

namespace stead {

/// How a tensor gets from one device to another along a path.
enum class Crossing {
    link,  // over the link between the two devices
    host,  // written to host memory, then read from it
};

/// Ticks of tensor `t` from device s to another device d; `never` without a way.
Ticks crossing_ticks(const Problem& problem, std::int32_t t, int s, int d, Crossing crossing);

/// The earliest moment at which each operator can be finished, over all placements; `never` if it cannot run at all.
///
/// earliest(v, d) = duration(v, d) + max over tensors t that v reads of
///                  min over devices s of earliest(producer(t), s) + (s == d ? 0 : crossing of t from s to d).
/// By induction on v no schedule of any placement with v on d finishes v sooner: queues and memory only delay.
std::vector<Ticks> earliest_finish(const Problem& problem, Crossing crossing);

}  // namespace stead
