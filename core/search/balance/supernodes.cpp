#include "search/balance/supernodes.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/fail.h"
#include "base/rows.h"

namespace stead {
namespace {

constexpr std::int64_t most_prices = std::int64_t{1} << 25;  // 256 MiB

std::uint64_t bit(int d) { return std::uint64_t{1} << d; }

/// Sorts pairs (key, value) into a list per key; values stay in the order of the pairs.
Rows lists_by_key(std::int32_t keys, std::span<const std::pair<std::int32_t, std::int32_t>> pairs) {
    Rows lists{std::vector<std::int32_t>(keys + 1, 0), std::vector<std::int32_t>(pairs.size())};
    for (const auto& [key, value] : pairs) ++lists.first[key + 1];
    std::partial_sum(lists.first.begin(), lists.first.end(), lists.first.begin());
    std::vector<std::int32_t> next(lists.first.begin(), lists.first.end() - 1);
    for (const auto& [key, value] : pairs) lists.items[next[key]++] = value;
    return lists;
}

int lanes_of(LoadKind load) { return load == LoadKind::sum ? 1 : load == LoadKind::duplex ? 3 : 2; }

/// Number of supernodes; throws unless they are numbered from 0 without gaps.
std::int32_t count_nodes(const Problem& problem, std::span<const std::int32_t> node_of) {
    if (static_cast<std::int64_t>(node_of.size()) != problem.operators)
        fail("node_of needs ", problem.operators, " entries, got ", node_of.size());
    std::vector<std::uint8_t> seen(node_of.size(), 0);
    std::int32_t count = 0;
    for (std::size_t v = 0; v < node_of.size(); ++v) {
        const std::int32_t node = node_of[v];
        if (node < 0 || node >= problem.operators)
            fail("node_of[", v, "] must lie in 0..", problem.operators - 1, ", got ", node);
        seen[node] = 1;
        count = std::max(count, node + 1);
    }
    const auto gap = std::find(seen.begin(), seen.begin() + count, 0);
    if (gap != seen.begin() + count) fail("node_of must use every number, ", gap - seen.begin(), " is missing");
    return count;
}

}  // namespace

Supernodes::Supernodes(const Problem& problem, std::span<const std::int32_t> node_of, LoadKind given_load,
                       std::span<const std::int64_t> room)
    : devices(problem.devices), phases(given_load == LoadKind::fwbw ? 2 : 1), lanes(lanes_of(given_load)),
      load(given_load), routed_by_host(problem.routed_by_host), allowed(count_nodes(problem, node_of), 0),
      room_bytes(room.begin(), room.end()), problem_(problem) {
    if (room.empty()) room_bytes = problem.memory_bytes;
    if (static_cast<int>(room_bytes.size()) != devices)
        fail("room_bytes needs ", devices, " entries, got ", room.size());
    for (const Part part : {computed, received, sent})
        for (const int late : {0, 1})
            lane_[part][late] = load == LoadKind::fwbw      ? late
                                : load == LoadKind::duplex  ? part
                                : load == LoadKind::overlap ? part != computed
                                                            : 0;
    take_compute(node_of);
    take_ways();
    take_bundles(node_of);
    take_weights(node_of);
    link_up();
}

void Supernodes::take_compute(std::span<const std::int32_t> node_of) {
    const std::uint64_t all = devices == 64 ? ~std::uint64_t{0} : bit(devices) - 1;
    std::fill(allowed.begin(), allowed.end(), all);
    compute_.assign(std::int64_t{count()} * devices * phases, 0);
    std::vector<std::uint8_t> seen(count(), 0);
    for (std::int32_t op = 0; op < problem_.operators; ++op) {
        const std::int32_t v = node_of[op];
        if (!seen[v]) by_position.push_back(v);
        seen[v] = 1;
        const int late = phases == 2 && problem_.phase[op] != 0;
        for (int d = 0; d < devices; ++d) {
            const Ticks ticks = problem_.duration[std::int64_t{op} * devices + d];
            if (ticks == impossible) allowed[v] &= ~bit(d);
            else compute_[(std::int64_t{v} * devices + d) * phases + late] += ticks;
        }
    }
    const auto stranded = std::find(allowed.begin(), allowed.end(), 0);
    if (stranded != allowed.end()) fail("no device may run all of supernode ", stranded - allowed.begin());
}

void Supernodes::take_ways() {
    const auto way_of = [&](const Link& link) {
        const auto same = std::ranges::find_if(ways_, [&](const Link& way) {
            return way.latency == link.latency && way.ps_per_byte == link.ps_per_byte && way.hops == link.hops;
        });
        const auto number = static_cast<std::int32_t>(same - ways_.begin());
        if (number == way_count()) ways_.push_back(link);
        return number;
    };
    for (int s = 0; s < devices; ++s) {
        if (routed_by_host) {
            write_way_.push_back(way_of(problem_.host_write[s]));
            read_way_.push_back(way_of(problem_.host_read[s]));
            continue;
        }
        for (int d = 0; d < devices; ++d) link_way_.push_back(s == d ? -1 : way_of(problem_.link(s, d)));
    }
}

bool Supernodes::is_free(std::int32_t t) const {
    for (int way = 0; way < way_count(); ++way)
        if (tensor_price(t, way) != 0) return false;
    return true;
}

void Supernodes::take_bundles(std::span<const std::int32_t> node_of) {
    struct Leaving {
        std::int32_t source, late, tensor, first, last;  // readers: from first to last - 1
    };
    std::vector<Leaving> leaving;
    std::vector<std::int32_t> targets;
    for (std::int32_t t = 0; t < problem_.tensors; ++t) {
        const std::int32_t producer = problem_.producer[t], v = node_of[producer];
        const auto first = static_cast<std::int32_t>(targets.size());
        for (std::int32_t i = problem_.consumer_first[t]; i < problem_.consumer_first[t + 1]; ++i)
            if (node_of[problem_.consumer[i]] != v) targets.push_back(node_of[problem_.consumer[i]]);
        std::sort(targets.begin() + first, targets.end());
        targets.erase(std::unique(targets.begin() + first, targets.end()), targets.end());
        const auto last = static_cast<std::int32_t>(targets.size());
        if (first == last || is_free(t)) targets.resize(first);
        else leaving.push_back({v, phases == 2 && problem_.phase[producer] != 0, t, first, last});
    }
    const auto compare = [&](const Leaving& a, const Leaving& b) {
        if (a.source != b.source) return a.source <=> b.source;
        if (a.late != b.late) return a.late <=> b.late;
        return std::lexicographical_compare_three_way(targets.begin() + a.first, targets.begin() + a.last,
                                                      targets.begin() + b.first, targets.begin() + b.last);
    };
    std::ranges::stable_sort(leaving, [&](const Leaving& a, const Leaving& b) { return compare(a, b) < 0; });
    const bool merging = static_cast<std::int64_t>(leaving.size()) * way_count() <= most_prices;
    reader_first.push_back(0);
    for (std::size_t i = 0; i < leaving.size(); ++i) {
        const Leaving& one = leaving[i];
        const bool joins = merging && i > 0 && compare(leaving[i - 1], one) == 0;
        if (!joins) {
            source.push_back(one.source);
            phase.push_back(static_cast<std::uint8_t>(one.late));
            tensor_.push_back(one.tensor);
            reader.insert(reader.end(), targets.begin() + one.first, targets.begin() + one.last);
            reader_first.push_back(static_cast<std::int32_t>(reader.size()));
            if (merging) prices_.resize(prices_.size() + way_count(), 0);
        }
        for (int way = 0; merging && way < way_count(); ++way) {
            Ticks& price = prices_[prices_.size() - way_count() + way];
            const Ticks more = tensor_price(one.tensor, way);
            price = more == impossible ? impossible : price + more;
        }
    }
}

void Supernodes::take_weights(std::span<const std::int32_t> node_of) {
    own_bytes.assign(count(), 0);
    std::vector<std::pair<std::int32_t, std::int32_t>> users;  // (supernode, shared weight)
    for (std::int32_t w = 0; w < problem_.weights; ++w) {
        std::vector<std::int32_t> nodes;
        for (std::int32_t i = problem_.weight_user_first[w]; i < problem_.weight_user_first[w + 1]; ++i)
            nodes.push_back(node_of[problem_.weight_user[i]]);
        std::ranges::sort(nodes);
        nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
        if (nodes.empty() || problem_.weight_bytes[w] == 0) continue;
        if (nodes.size() == 1) {
            own_bytes[nodes[0]] += problem_.weight_bytes[w];
            continue;
        }
        for (const std::int32_t v : nodes) users.emplace_back(v, static_cast<std::int32_t>(shared_bytes.size()));
        shared_bytes.push_back(problem_.weight_bytes[w]);
    }
    Rows lists = lists_by_key(count(), users);
    shared_first = std::move(lists.first);
    shared = std::move(lists.items);
}

/// Fills what leads from supernodes to bundles and to each other.
void Supernodes::link_up() {
    written_first.assign(count() + 1, 0);
    for (const std::int32_t v : source) ++written_first[v + 1];
    std::partial_sum(written_first.begin(), written_first.end(), written_first.begin());
    std::vector<std::pair<std::int32_t, std::int32_t>> reads, ends;
    for (std::int32_t b = 0; b < bundles(); ++b)
        for (const std::int32_t v : readers_of(b)) {
            reads.emplace_back(v, b);
            ends.emplace_back(v, source[b]);
            ends.emplace_back(source[b], v);
        }
    Rows lists = lists_by_key(count(), reads);
    read_first = std::move(lists.first);
    read_bundle = std::move(lists.items);
    lists = lists_by_key(count(), ends);
    near_first = std::move(lists.first);
    near = std::move(lists.items);
}

}  // namespace stead
