#include "build/spill.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/fail.h"
#include "base/placement.h"
#include "base/weight_users.h"

namespace stead {

namespace {

class Spill {
public:
    Spill(const ListTables& tables, std::span<DeviceIndex> devices, std::span<const std::int32_t> order,
          std::span<const std::int64_t> room_bytes)
        : tables_(tables), problem_(tables.problem), devices_(devices), room_(room_bytes.begin(), room_bytes.end()),
          outputs_(tables.units(), 0), by_position_(tables.units()) {
        users_.clear(problem_.weights, problem_.devices);
        std::vector<std::int32_t> position(problem_.operators, 0), first(tables.units());
        for (std::size_t i = 0; i < order.size(); ++i) position[order[i]] = static_cast<std::int32_t>(i);
        for (std::int32_t unit = 0; unit < tables.units(); ++unit) {
            first[unit] = problem_.operators;
            for (const std::int32_t v : tables.members[unit]) {
                first[unit] = std::min(first[unit], position[v]);
                outputs_[unit] += problem_.output_bytes[v];
            }
            for (const std::int32_t w : tables.weights[unit]) users_.add(w, device(unit));
        }
        std::iota(by_position_.begin(), by_position_.end(), 0);
        std::sort(by_position_.begin(), by_position_.end(),
                  [&](std::int32_t a, std::int32_t b) { return first[a] < first[b]; });
    }

    /// Moves the tail of device d until `over` bytes are gone; how many units that were.
    std::int64_t unload(int d, std::int64_t over) {
        std::int64_t moved = 0;
        int target = -1;
        for (auto unit = by_position_.rbegin(); unit != by_position_.rend() && over > 0; ++unit) {
            if (device(*unit) != d) continue;
            if (target < 0 || !takes(*unit, target)) target = roomiest(*unit, d);
            if (target < 0) continue;  // an earlier, smaller one may find a place
            over -= bytes_freed(*unit, d);
            move(*unit, d, target);
            ++moved;
        }
        return moved;
    }

private:
    int device(std::int32_t unit) const { return devices_[tables_.members[unit].front()]; }

    std::int64_t bytes_freed(std::int32_t unit, int d) {
        std::int64_t bytes = outputs_[unit];
        for (const std::int32_t w : tables_.weights[unit])
            if (users_.count(w, d) == 1) bytes += problem_.weight_bytes[w];
        return bytes;
    }

    std::int64_t bytes_added(std::int32_t unit, int d) {
        std::int64_t bytes = tables_.held_bytes[unit];
        for (const std::int32_t w : tables_.weights[unit])
            if (users_.count(w, d) == 0) bytes += problem_.weight_bytes[w];
        return bytes;
    }

    bool takes(std::int32_t unit, int d) {
        return (tables_.allowed[unit] >> d & 1) && bytes_added(unit, d) <= room_[d];
    }

    int roomiest(std::int32_t unit, int source) {
        int found = -1;
        for (int d = 0; d < problem_.devices; ++d)
            if (d != source && takes(unit, d) && (found < 0 || room_[d] > room_[found])) found = d;
        return found;
    }

    void move(std::int32_t unit, int source, int target) {
        room_[target] -= bytes_added(unit, target);
        for (const std::int32_t w : tables_.weights[unit]) {
            users_.remove(w, source);
            users_.add(w, target);
        }
        for (const std::int32_t v : tables_.members[unit]) devices_[v] = static_cast<DeviceIndex>(target);
    }

    const ListTables& tables_;
    const Problem& problem_;
    std::span<DeviceIndex> devices_;
    std::vector<std::int64_t> room_;         // [device]
    WeightUsers users_;                      // units
    std::vector<std::int64_t> outputs_;      // [unit]
    std::vector<std::int32_t> by_position_;  // units
};

}  // namespace

Spilled spill(const ListTables& tables, std::span<const DeviceIndex> devices, std::span<const std::int32_t> order,
              std::span<const std::int64_t> over_bytes, std::span<const std::int64_t> room_bytes) {
    const Problem& problem = tables.problem;
    if (static_cast<std::int64_t>(devices.size()) != problem.operators || order.size() != devices.size())
        fail("devices and order need ", problem.operators, " entries, one per operator");
    if (static_cast<std::int64_t>(over_bytes.size()) != problem.devices || room_bytes.size() != over_bytes.size())
        fail("over_bytes and room_bytes need ", problem.devices, " entries, one per device");
    for (const std::int32_t v : order)
        if (v < 0 || v >= problem.operators) fail("order has an operator ", v, " of ", problem.operators);
    check_placement(problem, devices.data());
    Spilled spilled{{devices.begin(), devices.end()}};
    Spill state(tables, spilled.devices, order, room_bytes);
    for (int d = 0; d < problem.devices; ++d)
        if (over_bytes[d] > 0) spilled.moved_units += state.unload(d, over_bytes[d]);
    return spilled;
}

}  // namespace stead
