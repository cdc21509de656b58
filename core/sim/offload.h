// Latency of one sample when accelerators are called like functions: the cost model of Tarnawski et al., "Efficient
// Algorithms for Device Placement of DNN Graph Operators", NeurIPS 2020.
#pragma once

#include <cstdint>
#include <vector>

#include "base/placement.h"
#include "base/problem.h"

namespace stead {

/// Latency by calls. A host device runs every operator as soon as its inputs are there, on as many cores as it takes.
/// The operators of any other device are cut into pieces, and each piece is one call: it starts when all it reads is
/// there, reads its inputs from host memory, computes, writes what others read back, and only then is anything done.
/// An operator's piece is counted by how often a path to it re-enters the device, so a piece never waits for itself.
class Offload {
public:
    /// `overlapping`: pieces of one device may overlap in time, as in the published evaluation; otherwise they run one
    /// after another.
    Offload(const Problem& problem, bool overlapping);

    struct Outcome {
        Status status;
        Ticks latency;  // -1 unless the status is ok
    };
    Outcome evaluate(const DeviceIndex* placement);

private:
    /// A call, or an operator on a host device.
    struct Unit {
        Ticks start = 0;
        Ticks length = 0;
        std::int32_t need = 0;       // how many readings and earlier calls it still waits for
        bool leads_to_next = false;  // the following unit is the next call on the same device
    };

    void count_entries(const DeviceIndex* placement);
    void make_units(const DeviceIndex* placement);
    bool add_lengths(const DeviceIndex* placement);
    void list_members();
    Outcome settle();
    void finish(std::int32_t u, Ticks time);
    void wait_for(std::int32_t u, Ticks time);

    const Problem& problem_;
    const bool overlapping_;
    std::vector<std::int32_t> entries_;  // [operator, device]; most runs of the device on a path that ends here
    std::vector<Unit> units_;
    std::vector<std::int32_t> unit_of_;       // [operator]
    std::vector<std::int32_t> member_first_;  // [unit + 1], and a spare entry
    std::vector<std::int32_t> member_;        // operators by unit
    std::vector<std::int32_t> last_read_;     // [unit]; the last tensor it was found to read
    std::vector<std::int32_t> startable_;     // units that wait for nothing
};

}  // namespace stead
