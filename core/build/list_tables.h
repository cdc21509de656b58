// What every construction looks up: who reads what, units and their members.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/problem.h"
#include "base/rows.h"

namespace stead {

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

}  // namespace stead
