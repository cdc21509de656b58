// Memory while a placement grows: what is certain to stay on each device, and what a unit would add.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "build/list_tables.h"

namespace stead {

/// Bytes that stay on each device: weights, once per device, and tensors that are held for long (outputs of the graph,
/// activations that wait for the backward pass), also where they are received. Tensors that come and go are left to the
/// simulator. Nothing is counted where memory is ample.
class Room {
public:
    Room(const ListTables& tables, std::span<const std::int64_t> limit_bytes);

    bool is_ample() const { return ample_; }
    /// What is left of d; negative where more was taken than there is.
    std::int64_t free_bytes(int d) const { return free_[d]; }

    /// Fills short_bytes [device] with what each device would lack if `unit` were put there; 0 where it fits.
    void look(std::int32_t unit, const std::vector<int>& device_of_unit, std::int64_t* short_bytes);

    /// Takes the room that `unit` needs on d.
    void take(std::int32_t unit, int d, const std::vector<int>& device_of_unit);

private:
    template <class Visit>
    void for_each_need(std::int32_t unit, const std::vector<int>& device_of_unit, Visit visit);

    const ListTables& tables_;
    const bool ample_;
    std::vector<std::int64_t> free_;           // [device]
    std::vector<std::uint64_t> weight_there_;  // [weight]; devices that hold it, as bits
    std::vector<std::uint64_t> tensor_there_;  // [tensor]; devices that received it
};

}  // namespace stead
