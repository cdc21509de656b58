// The loads of devices while supernodes move.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/weight_users.h"
#include "search/balance/supernodes.h"

namespace stead {

/// The loads of a placement of supernodes, kept up to date move by move. One thread only.
class MovingLoads {
public:
    explicit MovingLoads(const Supernodes& nodes);

    /// Starts again from a placement, in which everything must be allowed.
    void place(std::span<const DeviceIndex> devices);

    /// Works out what happens if v moves to device d, which is another one and allowed; nothing changes yet.
    void consider(std::int32_t v, int d);
    /// Makes the move considered last.
    void commit();

    int device(std::int32_t v) const { return device_[v]; }
    std::span<const DeviceIndex> devices() const { return device_; }
    const Lanes& lanes(int d) const { return lanes_[d]; }
    std::int64_t bytes(int d) const { return bytes_[d]; }
    std::int64_t blocked() const { return blocked_; }  // crossings without a way: with any, a placement cannot run
    Ticks value() const;

    // After consider(): devices whose load or memory would change, and to what.
    std::uint64_t touched() const { return touched_; }
    const Lanes& new_lanes(int d) const { return new_lanes_[d]; }
    std::int64_t new_bytes(int d) const { return new_bytes_[d]; }
    std::int64_t new_blocked() const { return new_blocked_; }
    Ticks new_value() const;

private:
    void touch(int d);
    void pay(int d, Part part, int phase, Ticks ticks, int sign);
    void recharge_link(std::int32_t b, int s, std::uint64_t targets, int sign);
    void recharge(std::int32_t b, int s, std::uint64_t read_on, int new_s, std::uint64_t new_read_on);
    void move_compute(std::int32_t v, int d, int sign);
    std::uint64_t read_on_after(std::int32_t b, int from, int to) const;
    void note_readers(std::int32_t v, int d, int sign);
    std::int64_t entry(std::int32_t row, int d) const { return std::int64_t{row} * nodes_.devices + d; }

    const Supernodes& nodes_;
    std::vector<DeviceIndex> device_;       // [supernode]
    std::vector<Lanes> lanes_, new_lanes_;   // [device]
    std::vector<std::int64_t> bytes_, new_bytes_;
    std::int64_t blocked_ = 0, new_blocked_ = 0;
    std::uint64_t touched_ = 0;
    std::int32_t moving_ = -1;
    int target_ = 0;
    std::vector<std::uint64_t> read_on_;     // [bundle]; bit d: a reader is on device d
    std::vector<std::int32_t> count_row_;    // [bundle]; -1 for bundles with one reader
    std::vector<std::int32_t> readers_on_;   // [counted bundle, device]
    WeightUsers users_on_;                   // supernodes, of shared weights
};

}  // namespace stead
