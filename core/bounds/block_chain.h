// Blocks between the operators of a path, one after another: what they take at least adds up.
//
// All that waits for operator h of a path and that operator e of it waits for runs between the finish of h and the
// start of e. Cut the path anywhere: with B[i, s, d] what block i takes at least when its head is on s and its end on d,
// every run takes at least the least over devices d_0, d_1, .. of B[1, d_0, d_1] + B[2, d_1, d_2] + ..
// What lies between no two neighbouring cuts is left out. Only the blocks of the least sum are searched, and again with
// more steps, so that every search raises it: others cannot lower it.
#pragma once

#include <cstdint>
#include <span>

#include "base/problem.h"
#include "base/watch.h"

namespace stead {

struct ChainOptions {
    std::span<const std::int32_t> path;   // operators, each of which waits for the one before
    std::span<const std::int32_t> units;  // [operator]; equal numbers share a device
    int most_operators = 64;              // of a block: larger ones are cut where least work is lost
    Ticks known = 0;                      // a bound: search ends where it cannot get beyond that
    std::int64_t steps = 0;               // of search, in all: operators that are looked at, again for every choice
};

/// A lower bound on the latency of every placement in every order; a watch that stops leaves what is proved until then.
Ticks block_chain_bound(const Problem& problem, const ChainOptions& options, Watch& watch);

}  // namespace stead
