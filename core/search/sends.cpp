#include "search/sends.h"

#include "base/fail.h"
#include "base/rows.h"

namespace stead {

void check_by_reader(const Problem& problem) {
    if (problem.carries) fail("devices that carry tensors themselves send in the order of producers");
}

std::vector<std::int32_t> list_sends(const Problem& problem, std::span<const DeviceIndex> placement,
                                     std::span<const std::int32_t> order) {
    const Rows reads = transposed(problem.operators, problem.consumer_first, problem.consumer);
    const std::int64_t k = problem.devices;
    if (problem.operators + problem.tensors * k > INT32_MAX) fail("too many transfers to list");
    std::vector<std::uint64_t> sent(problem.tensors);  // devices as bits
    std::vector<std::int32_t> items;
    items.reserve(order.size() * 2);
    for (const std::int32_t v : order) {
        const std::uint64_t here = std::uint64_t{1} << placement[v];
        for (const std::int32_t t : reads[v]) {
            if (placement[problem.producer[t]] == placement[v] || (sent[t] & here)) continue;
            sent[t] |= here;
            items.push_back(static_cast<std::int32_t>(problem.operators + t * k + placement[v]));
        }
        items.push_back(v);
    }
    return items;
}

}  // namespace stead
