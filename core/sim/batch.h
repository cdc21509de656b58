// Many placements at once: equal rows only once, with the same result for any number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/problem.h"
#include "base/workers.h"
#include "sim/memory.h"
#include "sim/policies/engine.h"

namespace stead {

/// Placements, one per row of `operators` devices; checked by every function that takes them.
struct Placements {
    const DeviceIndex* data = nullptr;
    std::int64_t rows = 0;
    const std::uint8_t* narrow = nullptr;  // in place of `data`, where single rows are read: most clusters are small
    const DeviceIndex* row(std::int64_t b, const Problem& problem) const { return data + b * problem.operators; }
};

/// An order for all rows, or one per row.
struct RowOrders {
    const std::int32_t* data = nullptr;
    std::int64_t length = 0;  // of one order
    bool per_row = false;
    std::span<const std::int32_t> row(std::int64_t b) const {
        return {data + (per_row ? b * length : 0), static_cast<std::size_t>(length)};
    }
};

/// Scores of a batch; -1 in `ticks` unless a row was simulated to its end.
struct Scores {
    Scores(std::int64_t rows, int devices);
    std::size_t rows() const { return ticks.size(); }
    std::size_t devices;
    std::vector<Ticks> ticks;          // [row]
    std::vector<std::uint8_t> status;  // [row]; values of Status
    std::vector<std::int64_t> peak;    // [row, device]; -1 where it was not determined
    std::vector<std::int64_t> over;    // [row, device]; at least so many bytes are missing
};

struct LoadScores : Scores {
    LoadScores(std::int64_t rows, int devices);
    std::vector<Ticks> compute, received, sent;  // [row, device, 2]; -1 where the placement cannot run
};

struct SimulateOptions {
    Policy policy = Policy::fifo;
    RowOrders order = {};
    RowOrders transfer_order = {};
    bool sends = false;
    MemoryMode memory = MemoryMode::check;
    Ticks cutoff = never;
};

Scores simulate_many(const Problem& problem, const Placements& placements, const SimulateOptions& options,
                     const Workers& workers);

/// Steady-state loads; `ticks` stay -1.
LoadScores loads_many(const Problem& problem, const Placements& placements, MemoryMode memory, const Workers& workers);

/// Latency by calls, see Offload.
Scores offload_many(const Problem& problem, const Placements& placements, bool overlapping, MemoryMode memory,
                    const Workers& workers);

/// For each row the first row that is equal to it in all `columns`.
struct RowBytes {
    const void* data;
    std::int64_t bytes;  // of one row
};
std::vector<std::int64_t> first_equal_rows(std::int64_t rows, std::span<const RowBytes> columns);

}  // namespace stead
