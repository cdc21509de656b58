// Supernodes: what searches for the least largest load work on.
//
// A supernode is a set of operators that share a device. A bundle is a set of tensors that cross together whatever the
// placement: same source, same readers, and the same phase where phases count. Letters: v supernode, b bundle.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/load_kind.h"
#include "base/problem.h"

namespace stead {

/// Times of one device that add up: one number for `sum`; compute and traffic for `overlap`; compute, received and sent
/// for `duplex`; forward and backward for `fwbw`. Lanes that are not used stay 0.
inline constexpr int max_lanes = 3;
using Lanes = std::array<Ticks, max_lanes>;

/// What a load consists of.
enum Part { computed, received, sent };

/// A problem as its supernodes see it. Never changes; safe to share between threads.
class Supernodes {
public:
    /// `node_of` [operator] numbers supernodes from 0 without gaps; `room_bytes` [device] limits the weights on every
    /// device and is its memory if empty. Throws std::invalid_argument if any of this makes no sense.
    Supernodes(const Problem& problem, std::span<const std::int32_t> node_of, LoadKind load,
               std::span<const std::int64_t> room_bytes);

    std::int32_t count() const { return static_cast<std::int32_t>(allowed.size()); }
    std::int32_t bundles() const { return static_cast<std::int32_t>(source.size()); }
    std::span<const std::int32_t> readers_of(std::int32_t b) const {
        return {reader.data() + reader_first[b], static_cast<std::size_t>(reader_first[b + 1] - reader_first[b])};
    }
    bool may_run(std::int32_t v, int d) const { return allowed[v] >> d & 1; }

    /// Time of supernode v on device d in one phase; phases are told apart by `fwbw` only.
    Ticks compute(std::int32_t v, int d, int phase) const {
        return compute_[(std::int64_t{v} * devices + d) * phases + phase];
    }
    /// Time of bundle b from device s to device d over a direct link; `impossible` without one.
    Ticks link(std::int32_t b, int s, int d) const { return price(b, link_way_[s * devices + d]); }
    /// Time of bundle b between a device and host memory.
    Ticks write(std::int32_t b, int d) const { return price(b, write_way_[d]); }
    Ticks read(std::int32_t b, int d) const { return price(b, read_way_[d]); }

    /// The lane that counts a part of the load.
    int lane(Part part, int phase) const { return lane_[part][phase]; }
    /// The value of a placement, given the largest load of any device in every lane.
    Ticks value(const Lanes& largest) const {
        return load == LoadKind::fwbw ? largest[0] + largest[1] : *std::max_element(largest.begin(), largest.end());
    }

    const int devices;
    const int phases;  // 2 for `fwbw`, else 1
    const int lanes;
    const LoadKind load;
    const bool routed_by_host;

    std::vector<std::uint64_t> allowed;      // [supernode]; bit d: may run on device d
    std::vector<std::int32_t> by_position;   // supernodes by their first operator
    std::vector<std::int32_t> source;        // [bundle]
    std::vector<std::uint8_t> phase;         // [bundle]
    std::vector<std::int32_t> written_first; // [supernode + 1]; bundles written by v: written_first[v] .. - 1
    std::vector<std::int32_t> reader_first;  // [bundle + 1]
    std::vector<std::int32_t> reader;        // supernodes other than the source, increasing
    std::vector<std::int32_t> read_first;    // [supernode + 1]
    std::vector<std::int32_t> read_bundle;   // bundles that v reads: from read_first[v] on
    std::vector<std::int32_t> near_first;    // [supernode + 1]
    std::vector<std::int32_t> near;          // supernodes at the other end of a bundle of v

    std::vector<std::int64_t> room_bytes;    // [device]
    std::vector<std::int64_t> own_bytes;     // [supernode]; weights that no other supernode uses
    std::vector<std::int64_t> shared_bytes;  // [shared weight]
    std::vector<std::int32_t> shared_first;  // [supernode + 1]
    std::vector<std::int32_t> shared;        // shared weights of v: from shared_first[v] on

private:
    void take_compute(std::span<const std::int32_t> node_of);
    void take_ways();
    void take_bundles(std::span<const std::int32_t> node_of);
    void take_weights(std::span<const std::int32_t> node_of);
    void link_up();
    bool is_free(std::int32_t t) const;
    Ticks tensor_price(std::int32_t t, int way) const {
        const Link& link = ways_[way];
        return link.latency == impossible ? impossible : problem_.wire(t, link) + link.latency;
    }
    Ticks price(std::int32_t b, int way) const {
        return prices_.empty() ? tensor_price(tensor_[b], way) : prices_[std::int64_t{b} * way_count() + way];
    }
    int way_count() const { return static_cast<int>(ways_.size()); }

    const Problem& problem_;
    std::vector<Ticks> compute_;  // [supernode, device, phase]
    std::vector<Link> ways_;      // links without repetitions
    std::vector<std::int32_t> link_way_, write_way_, read_way_;
    std::vector<Ticks> prices_;         // [bundle, way]; empty if that would be large: then bundles are single tensors
    std::vector<std::int32_t> tensor_;  // [bundle]; its first tensor
    int lane_[3][2] = {};
};

}  // namespace stead
