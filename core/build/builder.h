// One construction of a list schedule.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/watch.h"
#include "build/free_memory.h"
#include "build/list_schedule.h"
#include "build/list_tables.h"
#include "build/ranks.h"
#include "build/timeline.h"

namespace stead {

/// What several variants share, computed when the first one asks for it, before threads start.
struct SharedRanks {
    SharedRanks(const Problem& problem, std::span<const ListVariant> variants) : by_average(3) {
        for (const ListVariant& variant : variants) {
            std::vector<double>& rank = by_average[static_cast<std::size_t>(variant.average)];
            if (rank.empty()) rank = upward_ranks(problem, variant.average);
            if (variant.rule == ListRule::peft && optimistic.empty()) optimistic = optimistic_costs(problem);
            if (variant.rule == ListRule::sct && move.empty()) move = mean_transfers(problem);
            if (variant.thrift > 0.0 && waste.empty()) waste = wasted_time(problem);
        }
    }
    const std::vector<double>& of(Average average) const { return by_average[static_cast<std::size_t>(average)]; }

    std::vector<std::vector<double>> by_average;  // [average][operator]
    std::vector<double> optimistic;               // [operator, device]
    std::vector<double> waste;                    // [operator, device]
    std::vector<double> move;                     // [tensor]
};

/// Thrown where time is up in the midst of a construction.
struct Late {};

/// One construction: the time line, the room, and where units are.
class Builder {
public:
    Builder(const ListTables& tables, const SharedRanks& ranks, const ListVariant& variant,
            std::span<const std::int64_t> limit_bytes, Watch& watch)
        : tables_(tables), problem_(tables.problem), ranks_(ranks), variant_(variant),
          // Rules that take what can start first never come back to a gap.
          timeline_(tables, variant.insertion && variant.rule != ListRule::etf && variant.rule != ListRule::sct),
          room_(tables, limit_bytes), device_of_unit_(tables.units(), -1), pending_(problem_.devices, 0),
          watch_(watch), pace_(watch) {}

    /// Throws Late once time is up.
    ListSchedule build();

private:
    // Rules that take operators one by one.
    void in_order(const std::vector<std::int32_t>& order);
    void by_optimistic_costs();
    int choose(std::int32_t v);
    void run(std::int32_t v, int d);
    double score(std::int32_t v, int d, const Offer& offer) const;
    double waste(std::int32_t v, int d) const;
    Ticks pending(std::int32_t unit, std::int32_t v, int d) const;
    ListSchedule result() const;

    // Rules that take pairs of operator and device.
    void earliest_first();

    const ListTables& tables_;
    const Problem& problem_;
    const SharedRanks& ranks_;
    const ListVariant variant_;
    Timeline timeline_;
    Room room_;
    std::vector<int> device_of_unit_;  // [unit]; -1 while it has none
    std::vector<Ticks> pending_;       // [device]; work of its units that has not run yet
    Watch& watch_;
    Pace pace_;

    friend class EarliestFirst;
};

}  // namespace stead
