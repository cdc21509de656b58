#include "search/balance/starts.h"

#include <bit>
#include <numeric>
#include <span>
#include <utility>

namespace stead {
namespace {

/// Fills devices one after another, in the order given, each up to `limit`; what is not allowed there goes where it is
/// quickest. Whether everything found a place.
bool fill_devices(const Supernodes& nodes, std::span<const int> order, Ticks limit,
                  std::vector<DeviceIndex>& devices) {
    const auto ticks = [&](std::int32_t v, int d) {
        Ticks sum = 0;
        for (int phase = 0; phase < nodes.phases; ++phase) sum += nodes.compute(v, d, phase);
        return sum;
    };
    std::size_t at = 0;
    Ticks filled = 0;
    for (const std::int32_t v : nodes.by_position) {
        while (at < order.size() && nodes.may_run(v, order[at]) && filled + ticks(v, order[at]) > limit) {
            ++at;
            filled = 0;
        }
        if (at == order.size()) return false;
        int d = order[at];
        if (nodes.may_run(v, d)) {
            filled += ticks(v, d);
        } else {
            d = std::countr_zero(nodes.allowed[v]);
            for (int other = d; other < nodes.devices; ++other)
                if (nodes.may_run(v, other) && ticks(v, other) < ticks(v, d)) d = other;
        }
        devices[v] = static_cast<DeviceIndex>(d);
    }
    return true;
}

}  // namespace

std::vector<DeviceIndex> random_start(const Supernodes& nodes, Rng& rng) {
    std::vector<DeviceIndex> devices(nodes.count());
    for (std::int32_t v = 0; v < nodes.count(); ++v) {
        std::uint64_t options = nodes.allowed[v];
        for (std::uint32_t skip = rng.below(std::popcount(options)); skip > 0; --skip) options &= options - 1;
        devices[v] = static_cast<DeviceIndex>(std::countr_zero(options));
    }
    return devices;
}

std::vector<DeviceIndex> balanced_start(const Supernodes& nodes, Rng& rng) {
    std::vector<int> order(nodes.devices);
    std::iota(order.begin(), order.end(), 0);
    for (int i = nodes.devices - 1; i > 0; --i) std::swap(order[i], order[rng.below(i + 1)]);
    std::vector<DeviceIndex> devices = random_start(nodes, rng);
    Ticks low = 0, high = Ticks{1} << 62;
    while (high - low > 1 + high / 256) {
        const Ticks middle = low + (high - low) / 2;
        (fill_devices(nodes, order, middle, devices) ? high : low) = middle;
    }
    fill_devices(nodes, order, high, devices);
    return devices;
}

}  // namespace stead
