// Bytes on every device over time, and whether they fit.
//
// Blocks are half-open intervals: an output lives on its producer's device from the producer's start until it has been
// read there and has arrived elsewhere (to the end of the run when it is kept), a received copy from the begin of its
// transfer to its last reader, workspace while the operator runs, weights always. Memory never delays an operator.
#pragma once

#include <cstdint>
#include <vector>

#include "base/placement.h"
#include "base/problem.h"
#include "sim/sending.h"

namespace stead {

enum class MemoryMode {
    off,    // do not look
    check,  // decide whether everything fits, by bounds where they suffice
    peak,   // exact peaks
};

/// What is known about the memory of one device.
struct Peak {
    std::int64_t bytes = -1;  // -1: not determined
    std::int64_t over = 0;    // bytes beyond the capacity; a lower bound of them when `bytes` is not determined
    Ticks at = -1;            // first moment of the peak
};

/// A step function: bytes[i] from times[i] on.
struct Curve {
    std::vector<Ticks> times;
    std::vector<std::int64_t> bytes;
};

/// Changes of the bytes on every device.
class Changes {
public:
    struct Change {
        Ticks time;
        std::int64_t bytes;
    };

    Changes(int devices, std::int64_t most) : all_(most + devices), first_(devices), end_(devices) {}
    /// Forgets everything and makes room for counts[d] changes on each device d.
    void clear(const std::int64_t* counts);
    void add(int d, Ticks time, std::int64_t bytes) { all_[end_[d]++] = {time, bytes}; }
    void sort();
    /// After sort(): the changes on device d in order of time; the last one is at `never`.
    const Change* on(int d) const { return &all_[first_[d]]; }

private:
    std::vector<Change> all_;
    std::vector<std::int64_t> first_, end_;  // [device]
};

/// Memory of simulated runs, one after another in memory that is allocated once.
class Memory {
public:
    explicit Memory(const Problem& problem);

    /// Looks at a placement before it is simulated and tells whether judge() will need the run.
    bool needs_run(const DeviceIndex* placement, MemoryMode mode);

    /// The peak of every device, for the placement that needs_run() saw; `run` is only read if that returned true.
    const std::vector<Peak>& judge(const DeviceIndex* placement, const Run& run, Ticks makespan);

    /// The bytes on every device over the whole run.
    std::vector<Curve> curves(const DeviceIndex* placement, const Run& run, Ticks makespan);

private:
    template <int kDevices>
    void bound(const DeviceIndex* placement);
    void prepare(const DeviceIndex* placement, const Run& run);
    void sort_operators(const DeviceIndex* placement, const Run& run);
    void note_transfers(const DeviceIndex* placement, const Run& run);
    template <int kDevices>
    void find_ends(const DeviceIndex* placement, const Run& run);
    template <class Visit>
    void sweep(int d, const Run& run, Ticks makespan, Visit visit) const;

    const Problem& problem_;
    ManyDevices open_;                          // devices whose peak needs the run
    std::vector<Peak> peaks_;                   // [device]
    std::vector<std::int64_t> weights_;         // [device]
    std::vector<std::int32_t> sequence_;        // operators by device, as they ran
    std::vector<std::int32_t> sequence_first_;  // [device + 1]
    std::vector<Ticks> needed_until_;           // [tensor]; its last arrival elsewhere
    std::vector<std::int64_t> released_;        // [operator]; bytes freed on its device when it finishes
    Changes received_;                          // begins of transfers to a device
    Changes held_;                              // outputs that the last arrival elsewhere frees
};

/// Peaks of a placement without a time line: each device runs its operators in index order. An output is alive from its
/// producer to its last reader on that device, to the end if it is kept or read elsewhere; a received tensor from the
/// beginning to its last reader.
class UntimedMemory {
public:
    explicit UntimedMemory(const Problem& problem);
    const std::vector<Peak>& judge(const DeviceIndex* placement);

private:
    template <int kDevices>
    void add_up(const DeviceIndex* placement);
    template <int kDevices>
    void note_lifetime(const View<kDevices>& view, std::int32_t t, const DeviceIndex* placement);

    const Problem& problem_;
    std::vector<Peak> peaks_;             // [device]
    std::vector<std::int64_t> weights_;   // [device]
    std::vector<std::int64_t> level_;     // [device]
    std::vector<std::int64_t> released_;  // [operator]; bytes freed on its device after it ran
};

}  // namespace stead
