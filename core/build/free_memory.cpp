#include "build/free_memory.h"

#include <algorithm>

namespace stead {

Room::Room(const ListTables& tables, std::span<const std::int64_t> limit_bytes)
    : tables_(tables), ample_(tables.problem.memory_is_ample), free_(limit_bytes.begin(), limit_bytes.end()) {
    if (ample_) return;
    weight_there_.assign(tables.problem.weights, 0);
    tensor_there_.assign(tables.problem.tensors, 0);
}

/// Calls visit(bytes, devices that have it already, where that is noted or nullptr) for all that `unit` needs.
template <class Visit>
void Room::for_each_need(std::int32_t unit, const std::vector<int>& device_of_unit, Visit visit) {
    const Problem& problem = tables_.problem;
    if (tables_.held_bytes[unit]) visit(tables_.held_bytes[unit], 0, nullptr);
    for (const std::int32_t w : tables_.weights[unit])
        visit(problem.weight_bytes[w], weight_there_[w], &weight_there_[w]);
    for (const std::int32_t t : tables_.long_reads[unit]) {
        const int source = device_of_unit[tables_.unit_of[problem.producer[t]]];
        if (source >= 0)
            visit(problem.tensor_bytes[t], tensor_there_[t] | std::uint64_t{1} << source, &tensor_there_[t]);
    }
}

void Room::look(std::int32_t unit, const std::vector<int>& device_of_unit, std::int64_t* short_bytes) {
    const int k = tables_.problem.devices;
    std::fill_n(short_bytes, k, 0);
    if (ample_) return;
    for_each_need(unit, device_of_unit, [&](std::int64_t bytes, std::uint64_t there, const std::uint64_t*) {
        for (int d = 0; d < k; ++d)
            if (!(there >> d & 1)) short_bytes[d] += bytes;
    });
    for (int d = 0; d < k; ++d) short_bytes[d] = std::max<std::int64_t>(0, short_bytes[d] - free_[d]);
}

void Room::take(std::int32_t unit, int d, const std::vector<int>& device_of_unit) {
    if (ample_) return;
    for_each_need(unit, device_of_unit, [&](std::int64_t bytes, std::uint64_t there, std::uint64_t* note) {
        if (there >> d & 1) return;
        free_[d] -= bytes;
        if (note) *note |= std::uint64_t{1} << d;
    });
}

}  // namespace stead
