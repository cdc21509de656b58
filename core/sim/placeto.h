// Policy "placeto": the simulator published with Placeto (Addanki et al., NeurIPS 2019), bit for bit.
//
// One compute queue and one outgoing bus per device, a gap after every operator and every transfer, one transfer per
// output for all its remote readers together, ties broken by name. Its readable specification is
// src/stead/sim/spec/published_placeto.py; times are doubles in us, added in exactly the order given there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/problem.h"
#include "base/workers.h"

namespace stead {

/// What a caller hands in. Operators are in file order, which need not be topological.
struct PlacetoArrays {
    std::vector<std::string> names;              // [operator]; distinct; they decide ties
    std::span<const double> cost_us;             // [operator]
    std::span<const std::uint8_t> pays_gap;      // [operator]; 0 only where the cost was given as the integer 0
    std::span<const double> held_bytes;          // [operator]; all outputs together
    std::span<const std::int32_t> child_first;   // [operator + 1]
    std::span<const std::int32_t> child;         // readers of each operator, in the order in which they first name it
    std::span<const std::int32_t> child_output;  // [child]; the output that it waits for
    std::span<const double> output_bytes;        // [output]
};

/// Checked once when built, never changed afterwards; safe to share between threads.
class PlacetoGraph {
public:
    explicit PlacetoGraph(const PlacetoArrays& given);

    std::int32_t operators() const { return static_cast<std::int32_t>(cost_us_.size()); }

private:
    friend class PlacetoEngine;

    void check_acyclic(const PlacetoArrays& given) const;
    void sort_children(const PlacetoArrays& given);
    void add_groups(const PlacetoArrays& given, const std::vector<std::int32_t>& edges, std::int32_t v);

    std::vector<double> cost_us_, held_bytes_;
    std::vector<std::uint8_t> pays_gap_;
    std::vector<std::int32_t> name_rank_, parents_;  // [operator]; the latter only counts them
    std::vector<std::int32_t> child_first_, child_;  // readers in the order of their names: so they become ready
    // A group is an output that somebody reads; at any time some of its readers are remote and share one transfer.
    std::vector<std::int32_t> group_first_;                      // [operator + 1]
    std::vector<std::int32_t> group_operator_;                   // [group]
    std::vector<double> group_delay_us_;                         // [group]
    std::vector<std::int32_t> group_child_first_, group_child_;  // readers of a group in the order of their names
    std::vector<std::int32_t> group_child_place_;                // where each stood in the caller's order
};

/// One first-in-first-out queue per device. Every item is queued at most once, so they are linked lists in one array.
class DeviceQueues {
public:
    DeviceQueues(std::size_t items, int devices) : head_(devices), tail_(devices), next_(items) {}

    void clear() { std::ranges::fill(head_, none); }
    bool empty(int device) const { return head_[device] == none; }
    std::int32_t front(int device) const { return head_[device]; }
    void push(int device, std::int32_t item) {
        (empty(device) ? head_[device] : next_[tail_[device]]) = item;
        tail_[device] = item;
        next_[item] = none;
    }
    std::int32_t pop(int device) {
        const std::int32_t item = head_[device];
        head_[device] = next_[item];
        return item;
    }

private:
    static constexpr std::int32_t none = -1;
    std::vector<std::int32_t> head_, tail_;  // [device]
    std::vector<std::int32_t> next_;         // [item]
};

/// Simulates placements one after another in memory that is allocated once.
class PlacetoEngine {
public:
    PlacetoEngine(const PlacetoGraph& graph, int devices);

    /// The makespan: the time of the last event of any kind. Every entry of `placement` must be below `devices`.
    double simulate(const std::uint8_t* placement);

    /// Of the last simulation: when operators started, and the most bytes that each device ever held.
    const std::vector<double>& start_us() const { return start_us_; }
    void find_peaks(double* peak_bytes);

private:
    /// What can be pending for a device, in the order in which it happens at one time. The first two are the removals
    /// of the specification: of at most one finished operator and one finished transfer the readers are not told yet.
    enum Event { local_arrival, remote_arrival, bus, run };
    struct Change {
        double at_us, signed_bytes;
    };

    int slot(Event event, int device) const { return event * devices_ + device; }
    int next_slot() const;
    void enqueue(double now, std::int32_t v);
    void run_next(double now, int device);
    void queue_transfers(double end, std::int32_t v, int device);
    void send_next(double now, int device);
    void await_arrival(Event event, int device, double at, std::int32_t item, std::int32_t parent);
    void arrive_locally(double now, int device);
    void arrive_remotely(double now, int device);
    static double highest(std::vector<Change>& changes);

    const PlacetoGraph& graph_;
    const int devices_;
    std::vector<std::uint8_t> text_rank_;  // [device]; below, devices are numbered by the order of their names
    std::vector<std::uint8_t> device_;     // [operator]
    std::vector<std::int32_t> need_;       // [operator]; parents that have not arrived
    std::vector<double> start_us_;         // [operator]
    std::vector<double> slot_us_;          // [event, device]; when it happens, infinity if it is not pending
    std::vector<std::int32_t> slot_item_;  // [arrival, device]; the operator or the group that arrives
    std::vector<std::int32_t> slot_rank_;  // [arrival, device]; rank of the name of its operator
    DeviceQueues run_queue_;               // of operators
    DeviceQueues bus_queue_;               // of groups
    std::vector<std::pair<std::int32_t, std::int32_t>> transfers_;  // (place of the first remote reader, group)
    std::vector<std::vector<Change>> changes_;                      // [device]
};

struct PlacetoRun {
    double makespan_us = 0;
    std::vector<double> start_us;    // [operator]
    std::vector<double> peak_bytes;  // [device]
};

struct PlacetoScores {
    int devices = 0;
    std::vector<double> makespan_us;  // [row]
    std::vector<double> peak_bytes;   // [row, device]; -1 if not wanted
};

/// Both throw std::invalid_argument when `devices` or a placement makes no sense.
PlacetoRun simulate_placeto(const PlacetoGraph& graph, std::span<const std::uint8_t> placement, int devices);
PlacetoScores simulate_placeto_many(const PlacetoGraph& graph, std::span<const std::uint8_t> placements,
                                    std::int64_t rows, int devices, bool peaks, const Workers& workers);

}  // namespace stead
