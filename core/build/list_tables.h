// What every construction looks up: who reads what, units and their members, ranks and orders.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/problem.h"

namespace stead {

/// Which cost of an operator stands for all devices when ranks are computed.
enum class Average {
    mean,  // over the devices that may run it; transfers over all ways
    min,   // the fastest device, the fastest way
    best,  // the device that would do everything in the least time; transfers over all ways
};

/// A list of numbers for each row.
struct Rows {
    std::vector<std::int32_t> first;  // [row + 1]
    std::vector<std::int32_t> items;
    std::span<const std::int32_t> operator[](std::int32_t row) const {
        return {items.data() + first[row], items.data() + first[row + 1]};
    }
};

/// Derived once for a problem and a grouping into units; read by any number of constructions at once.
struct ListTables {
    /// Throws std::invalid_argument unless units are numbered from 0 without gaps.
    ListTables(const Problem& problem, std::span<const std::int32_t> unit_of);

    std::int32_t units() const { return static_cast<std::int32_t>(held_bytes.size()); }

    const Problem& problem;
    std::vector<std::int32_t> unit_of;     // [operator]; operators of one unit share a device
    Rows members;                          // [unit]; operators, increasing
    std::vector<std::uint64_t> allowed;    // [unit]; devices that can run all of it, as bits
    Rows reads;                            // [operator]; tensors

    // What certainly stays in memory. A tensor is long-lived if it is kept or read in a later phase than it is written.
    Rows weights;                          // [unit]; each once
    Rows long_reads;                       // [unit]; long-lived tensors of other units that it reads, each once
    std::vector<std::int64_t> held_bytes;  // [unit]; of its long-lived outputs

private:
    void take_units(std::span<const std::int32_t> units);
    void take_memory();
};

/// Time from the start of each operator to the end of the graph at average costs (upward rank; Topcuoglu et al. 2002).
std::vector<double> upward_ranks(const Problem& problem, Average average);

/// Optimistic cost table (Arabnejad and Barbosa 2014, equation 5): the least time behind operator v if it runs on d and
/// everything behind it where it is best off. [operator, device]
std::vector<double> optimistic_costs(const Problem& problem);

/// Mean time of each tensor between two devices, latency included. [tensor]
std::vector<double> mean_transfers(const Problem& problem);

/// Operators by decreasing rank; a topological order, because ranks never rise along a tensor and ties go by index.
std::vector<std::int32_t> by_rank(const std::vector<double>& rank);

/// Operators depth first: the reader that became ready last runs next, of several that of the highest rank.
std::vector<std::int32_t> depth_first(const Problem& problem, const std::vector<double>& rank);

/// Operators by the number of tensors on the longest path to them, ties by index.
std::vector<std::int32_t> by_level(const Problem& problem);

}  // namespace stead
