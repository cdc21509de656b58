// A path that no memory can hold: it changes device, and every change takes a transfer.
//
// v_1 .. v_n are operators of one path; they run in turn, whatever the placement. A placement cuts the path into runs,
// each on one device d, whose weights w fit its memory M. Least time over all cuttings, with work p and crossings x:
//     f[j, d] = min over i < j with w[i+1] + .. + w[j] <= M[d] of  g[i, d] + p[i+1, d] + .. + p[j, d]
//     g[i, d] = min over s != d of  f[i, s] + x[i, s, d],     g[0, d] = 0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/problem.h"
#include "bounds/critical_path.h"

namespace stead {

/// The path of greatest sum of `weight` [operator], in order.
std::vector<std::int32_t> heaviest_path(const Problem& problem, std::span<const double> weight);

/// Least ticks of a path over all ways to cut it into runs that fit; `never` if there is none.
///
/// Between two operators of the path the largest tensor counts. A weight counts where the path first uses it.
Ticks least_run_ticks(const Problem& problem, std::span<const std::int32_t> path, Crossing crossing);

}  // namespace stead
