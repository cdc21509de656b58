// Checks of the orders that callers hand in; each throws std::invalid_argument saying what is wrong and where.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/problem.h"

namespace stead {

/// An order that a policy does not use must not be given.
void check_unused(const char* name, std::span<const std::int32_t> order);

/// Owns the memory that the checks need, so that many orders can be checked without allocating.
class OrderCheck {
public:
    explicit OrderCheck(const Problem& problem);

    /// `order` holds each of 0 .. count - 1 once.
    void permutation(const char* name, std::span<const std::int32_t> order, std::int64_t count);
    /// `order` lists all operators, each after the producers of what it reads.
    void topological(std::span<const std::int32_t> order);
    /// `items` lists operators and transfers: each operator once, each transfer that `placement` needs once, after its
    /// producer and before its readers. Transfers that are not needed may stand anywhere.
    void items(std::span<const std::int32_t> items, const DeviceIndex* placement);

private:
    void run_item(std::int32_t v, const DeviceIndex* placement);
    void send_item(std::int32_t t, int target, const DeviceIndex* placement);

    const Problem& problem_;
    std::vector<std::int32_t> rank_;   // [item]
    std::vector<std::int32_t> need_;   // [operator]; tensors that are not there yet; -1 once it ran
    std::vector<bool> sent_;           // [tensor, device]; whether it has been sent there
};

}  // namespace stead
