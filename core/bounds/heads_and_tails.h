// How early operators can start and how much must follow them, over all placements: the two ends of windows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/problem.h"
#include "base/watch.h"
#include "base/wide.h"

namespace stead {

/// The graph as seen from its sources, or backwards from its sinks; tensors cross over links.
///
/// Node i is operator i, or operator n - 1 - i when seen backwards, so inputs of a node always come before it.
struct Precedence {
    Precedence(const Problem& problem, bool backward);

    std::int32_t node(std::int32_t v) const { return backward ? nodes - 1 - v : v; }

    /// Ticks of input `at` from device s, where its node lies, to device d != s of the reader; `never` without a way.
    Ticks crossing(std::int64_t at, int s, int d) const {
        const std::size_t kind = backward ? link_kind[d * devices + s] : link_kind[s * devices + d];
        return crossings[tensor[at] * kinds + kind];
    }

    std::int32_t nodes = 0;
    int devices = 0;
    bool backward = false;
    std::vector<Ticks> work;           // [node, device]; `never` where it cannot run
    std::vector<Ticks> least_work;     // [node]
    std::vector<std::int64_t> first;   // [node + 1]
    std::vector<std::int32_t> source;  // [input]; the node that must be done before
    std::vector<std::int32_t> tensor;  // [input]

private:
    void take_inputs(const Problem& problem);
    void take_links(const Problem& problem);

    std::size_t kinds = 0;                // of links; equal links share one
    std::vector<std::uint16_t> link_kind;  // [source, target]
    std::vector<Ticks> crossings;         // [tensor, kind]

public:
    std::vector<Ticks> cheapest;  // [tensor]; ticks of the quickest way between any two devices, `never` without one
};

/// What a device must be paid for its time: T * whole >= sum of time[d] * (work on d), since `time` adds up to `whole`.
struct Prices {
    std::vector<std::int64_t> time;    // [device]
    std::vector<std::int64_t> memory;  // [device]; per byte
    std::int64_t whole = 0;
};

/// Lower bounds on the moment at which each node can start on each device, [node, device].
///
/// 1. Inputs arrive: ready(v, d) >= max over inputs of min over s of ready(u, s) + work(u, s) + crossing.
/// 2. Take any set C of nodes before v. All of them run between the earliest start a in C and the start of v, so
///    (start - a) * whole >= sum over C of min over d of time[d] * work(u, d).
/// 3. Let every u in C have one edge into C or v, its way to v. If none of these edges crosses, all of C is on v's
///    device d and start >= a + sum over C of work(u, d); else start >= least over these edges (u, w) of
///    finish(u) + crossing + work(w) + longest chain from w to v.
/// Sets are the nodes that start last before v, up to `reach` of them; once the watch is stopped, only 1. counts.
std::vector<Ticks> earliest_starts(const Precedence& graph, const Prices& prices, int reach, Watch& watch);

}  // namespace stead
