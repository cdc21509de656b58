// How long it takes from each operator to the end, at costs that stand for all devices; and orders by that.
#pragma once

#include <cstdint>
#include <vector>

#include "base/problem.h"

namespace stead {

/// Which cost of an operator stands for all devices when ranks are computed.
enum class Average {
    mean,  // over the devices that may run it; transfers over all ways
    min,   // the fastest device, the fastest way
    best,  // the device that would do everything in the least time; transfers over all ways
};

/// Time from the start of each operator to the end of the graph at average costs (upward rank; Topcuoglu et al. 2002).
std::vector<double> upward_ranks(const Problem& problem, Average average);

/// Optimistic cost table (Arabnejad and Barbosa 2014, equation 5): the least time behind operator v if it runs on d and
/// everything behind it where it is best off. [operator, device]
std::vector<double> optimistic_costs(const Problem& problem);

/// What it costs all together to run operator v on d and not where it is best off, in ticks of the whole: time on each
/// device has its price in the program that spreads work over devices (see bounds/area.h). Infinite where it cannot run.
/// [operator, device]
std::vector<double> wasted_time(const Problem& problem);

/// Mean time of each tensor between two devices, latency included. [tensor]
std::vector<double> mean_transfers(const Problem& problem);

/// Operators by decreasing rank; a topological order, because ranks never rise along a tensor and ties go by index.
std::vector<std::int32_t> by_rank(const std::vector<double>& rank);

/// Operators depth first: the reader that became ready last runs next, of several that of the highest rank.
std::vector<std::int32_t> depth_first(const Problem& problem, const std::vector<double>& rank);

/// Operators by the number of tensors on the longest path to them, ties by index.
std::vector<std::int32_t> by_level(const Problem& problem);

}  // namespace stead
