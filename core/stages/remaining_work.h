// How many devices of each kind a chain of stages has used, and how much work it must have done by then.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "stages/growing_stage.h"
#include "stages/stages.h"

namespace stead {

/// States of a chain: used devices per kind as digits of one number.
class DeviceCounts {
public:
    /// With at most `replicas` devices for a stage.
    DeviceCounts(const Stages& stages, int replicas);

    /// Number of states; `never` if it does not fit.
    std::int64_t states() const { return states_; }
    int kinds() const { return static_cast<int>(count_.size()); }
    std::int64_t step(int j) const { return step_[j]; }
    std::int32_t used(std::int64_t state, int j) const {
        return static_cast<std::int32_t>(state / step_[j] % (std::int64_t{count_[j]} + 1));
    }
    std::int32_t left(std::int64_t state, int j) const { return count_[j] - used(state, j); }

private:
    std::vector<std::int32_t> count_;  // [kind]
    std::vector<std::int64_t> step_;   // [kind]
    std::int64_t states_ = 1;
};

/// Necessary conditions for a chain to be completed below a cutoff: what is left must fit the devices that are left.
///
/// A measure gives every node an amount of work and every device a capacity that no stage on it can exceed. With a
/// weight per kind, the least weight * ticks over kinds is such a work and weight * cutoff the capacity: a solution of
/// the dual of spreading the work fractionally. Memory is a measure too.
class WorkWindows {
public:
    static constexpr int most_measures = 5;
    using Work = std::array<std::int64_t, most_measures>;

    WorkWindows(const Stages& stages, const DeviceCounts& counts, LoadKind load);

    /// From now on every device must stay below `cutoff`. Makes the table of states.
    void cut(Ticks cutoff);

    int measures() const { return count_; }
    void add(Work& sum, std::int32_t v) const {
        for (int m = 0; m < measures(); ++m) sum[m] += work_[v][m];
    }
    void subtract(Work& sum, std::int32_t v) const {
        for (int m = 0; m < measures(); ++m) sum[m] -= work_[v][m];
    }

    /// Work of v and all that must come after it.
    const Work& work_from(std::int32_t v) const { return work_from_[v]; }
    const Work& total() const { return total_; }

    /// Work that must be done at least when a chain is in `state`.
    const Work& needed(std::int64_t state) const { return needed_[state]; }

    bool admits(const Work& done, const Work& needed) const {
        for (int m = 0; m < measures(); ++m)
            if (done[m] < needed[m]) return false;
        return true;
    }

    /// Work that tensor t adds when one of `kinds` must still receive it; 0 where transfers do not add to compute.
    Work receiving(std::int32_t t, Kinds kinds) const;
    bool receiving_adds_up() const { return receiving_adds_up_; }

    /// No chain in `state` that has `done` so much can stay below so many ticks.
    Ticks least_ticks(std::int64_t state, const Work& done) const;

private:
    /// Weights of kinds; none for memory.
    using Weights = std::vector<double>;

    std::vector<Weights> candidates() const;
    std::int64_t work_of(const Weights& weights, std::int32_t v) const;
    double least_ticks(const Weights& weights) const;
    std::vector<std::int64_t> bytes_of_nodes() const;
    void find_work();
    void find_work_from();

    const Stages& stages_;
    const DeviceCounts& counts_;
    bool receiving_adds_up_;
    std::vector<Weights> measures_;
    int count_ = 0;                       // of measures
    std::vector<Work> work_, work_from_;  // [node]
    Work total_{};
    std::vector<Work> needed_;            // [state]
};

}  // namespace stead
