#include "stages/stages.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/array_checks.h"
#include "base/fail.h"

namespace stead {
namespace {

constexpr std::int64_t limit = std::int64_t{1} << 61;
constexpr std::int64_t max_nodes = std::int64_t{1} << 24;

/// Lists of what `each` reports: it calls its argument with (list, item) and is asked twice.
template <class Each>
Lists make_lists(std::int64_t count, Each each) {
    Lists lists;
    lists.first.assign(count + 1, 0);
    each([&](std::int64_t list, std::int32_t) { ++lists.first[list + 1]; });
    for (std::int64_t i = 0; i < count; ++i) lists.first[i + 1] += lists.first[i];
    lists.items.resize(lists.first[count]);
    std::vector<std::int64_t> next(lists.first.begin(), lists.first.end() - 1);
    each([&](std::int64_t list, std::int32_t item) { lists.items[next[list]++] = item; });
    return lists;
}

void check_counts(const StagesArrays& given) {
    if (given.nodes > max_nodes) fail("the number of nodes must lie in 0..", max_nodes, ", got ", given.nodes);
    if (given.kinds < 1 || given.kinds > max_kinds)
        fail("the number of kinds must lie in 1..", max_kinds, ", got ", given.kinds);
    const std::size_t n = given.nodes, k = given.kinds;
    const std::size_t tensors = given.tensor_source.size(), weights = given.weight_bytes.size();
    constexpr std::size_t most = std::numeric_limits<std::int32_t>::max();
    if (std::max({tensors, weights, given.readers.size(), given.users.size(), given.order.size()}) >= most)
        fail("edges, tensors, weights, readers and users must each be fewer than ", most);
    check_size("ticks", given.ticks.size(), 2 * n * k);
    check_size("tensor_late", given.tensor_late.size(), tensors);
    check_size("reader_first", given.reader_first.size(), tensors + 1);
    check_size("receive_ticks", given.receive_ticks.size(), tensors * k);
    check_size("send_ticks", given.send_ticks.size(), tensors * k);
    check_size("user_first", given.user_first.size(), weights + 1);
    check_size("kind_count", given.kind_count.size(), k);
    check_size("kind_memory", given.kind_memory.size(), k);
}

void check_ticks(const StagesArrays& given) {
    for (std::int64_t i = 0; i < given.nodes * given.kinds; ++i) {
        const Ticks forward = given.ticks[2 * i], backward = given.ticks[2 * i + 1];
        if ((forward < 0 || backward < 0) && (forward != impossible || backward != impossible))
            fail("ticks of node ", i / given.kinds, " on kind ", i % given.kinds,
                 " must both be -1 or both at least 0, got ", forward, " and ", backward);
    }
}

void check_order(const StagesArrays& given) {
    for (std::size_t e = 0; e < given.order.size(); e += 2) {
        const std::int32_t before = given.order[e], after = given.order[e + 1];
        if (before < 0 || after >= given.nodes || before >= after)
            fail("order: edge ", e / 2, " is ", before, " before ", after, ", but nodes are 0..", given.nodes - 1,
                 " in a topological order");
        if (e > 0 && std::pair(before, after) <= std::pair(given.order[e - 2], given.order[e - 1]))
            fail("order: edge ", e / 2, " is ", before, " before ", after, ", which must come after edge ", e / 2 - 1);
    }
}

void check_tensors(const StagesArrays& given) {
    for (std::size_t t = 0; t < given.tensor_source.size(); ++t)
        if (given.tensor_source[t] < 0 || given.tensor_source[t] >= given.nodes)
            fail("tensor_source: tensor ", t, " has source ", given.tensor_source[t], ", but nodes are 0..",
                 given.nodes - 1);
    check_at_most("tensor_late", given.tensor_late, 1);
    check_runs("reader_first", given.reader_first, given.readers.size());
    check_increasing("readers", given.reader_first, given.readers, "node", given.nodes,
                     [](std::size_t) { return -1; });
    for (std::size_t t = 0; t < given.tensor_source.size(); ++t)
        for (std::int64_t i = given.reader_first[t]; i < given.reader_first[t + 1]; ++i)
            if (given.readers[i] == given.tensor_source[t])
                fail("readers: tensor ", t, " is read by its own source, node ", given.readers[i]);
    check_not_negative("receive_ticks", given.receive_ticks);
    check_not_negative("send_ticks", given.send_ticks);
}

void check_weights(const StagesArrays& given) {
    check_not_negative("weight_bytes", given.weight_bytes);
    check_runs("user_first", given.user_first, given.users.size());
    check_increasing("users", given.user_first, given.users, "node", given.nodes, [](std::size_t) { return -1; });
    check_not_negative("kind_count", given.kind_count);
    check_not_negative("kind_memory", given.kind_memory);
}

std::int64_t checked_sum(const char* what, std::int64_t sum, std::int64_t term) {
    if (term >= limit - sum) fail("the sum of ", what, " must stay below 2^61");
    return sum + term;
}

/// All of the largest times of nodes and tensors: a load that no device can exceed.
Ticks find_horizon(const StagesArrays& given) {
    Ticks sum = 0;
    const auto add_largest = [&](const char* what, std::span<const Ticks> row, std::size_t step) {
        Ticks largest = 0;
        for (std::size_t i = 0; i < row.size(); i += step) largest = std::max(largest, row[i]);
        sum = checked_sum(what, sum, largest);
    };
    const std::size_t k = given.kinds;
    for (std::size_t v = 0; v < static_cast<std::size_t>(given.nodes); ++v)
        for (const std::size_t phase : {0, 1})
            add_largest("ticks", given.ticks.subspan(2 * v * k + phase, 2 * k - phase), 2);
    for (std::size_t t = 0; t < given.tensor_source.size(); ++t) {
        add_largest("receive_ticks", given.receive_ticks.subspan(t * k, k), 1);
        add_largest("send_ticks", given.send_ticks.subspan(t * k, k), 1);
    }
    return sum;
}

}  // namespace

Stages::Stages(const StagesArrays& given) {
    check_counts(given);
    check_ticks(given);
    check_order(given);
    check_tensors(given);
    check_weights(given);
    horizon = find_horizon(given);
    for (const std::int64_t bytes : given.weight_bytes) total_bytes = checked_sum("weight_bytes", total_bytes, bytes);
    nodes = static_cast<std::int32_t>(given.nodes);
    kinds = static_cast<int>(given.kinds);
    kind_memory = copy(given.kind_memory);
    kind_count = copy(given.kind_count);
    take_nodes(given);
    take_tensors(given);
    take_weights(given);
}

void Stages::take_nodes(const StagesArrays& given) {
    ticks.reserve(given.ticks.size());
    for (const Ticks duration : given.ticks) ticks.push_back(std::max<Ticks>(duration, 0));
    runs_on.assign(nodes, 0);
    for (std::int64_t v = 0; v < nodes; ++v)
        for (int j = 0; j < kinds; ++j)
            if (given.ticks[2 * (v * kinds + j)] != impossible && kind_count[j] > 0) runs_on[v] |= Kinds{1} << j;
    successors = make_lists(nodes, [&](auto add) {
        for (std::size_t e = 0; e < given.order.size(); e += 2) add(given.order[e], given.order[e + 1]);
    });
    predecessors = make_lists(nodes, [&](auto add) {
        for (std::size_t e = 0; e < given.order.size(); e += 2) add(given.order[e + 1], given.order[e]);
    });
}

void Stages::take_tensors(const StagesArrays& given) {
    source = copy(given.tensor_source);
    late = copy(given.tensor_late);
    receive_ticks = copy(given.receive_ticks);
    readers = {copy(given.reader_first), copy(given.readers)};
    share_tariffs(given);
    const auto for_each_priced = [&](auto use) {
        for (std::int64_t t = 0; t < tensors(); ++t) {
            const auto is_priced = [&](std::span<const Ticks> prices) {
                return std::ranges::any_of(prices.subspan(t * kinds, kinds), [](Ticks price) { return price > 0; });
            };
            if (!readers[t].empty() && (is_priced(given.receive_ticks) || is_priced(given.send_ticks)))
                use(static_cast<std::int32_t>(t));
        }
    };
    outputs = make_lists(nodes, [&](auto add) { for_each_priced([&](std::int32_t t) { add(source[t], t); }); });
    inputs = make_lists(nodes, [&](auto add) {
        for_each_priced([&](std::int32_t t) {
            for (const std::int32_t v : readers[t]) add(v, t);
        });
    });
}

void Stages::share_tariffs(const StagesArrays& given) {
    std::vector<int> owner;  // the first kind of each tariff
    const auto equal_prices = [&](int a, int b) {
        for (std::int64_t t = 0; t < tensors(); ++t)
            if (given.receive_ticks[t * kinds + a] != given.receive_ticks[t * kinds + b] ||
                given.send_ticks[t * kinds + a] != given.send_ticks[t * kinds + b])
                return false;
        return true;
    };
    const auto is_free = [&](int j) {
        for (std::int64_t t = 0; t < tensors(); ++t)
            if (given.receive_ticks[t * kinds + j] != 0 || given.send_ticks[t * kinds + j] != 0) return false;
        return true;
    };
    tariff.assign(kinds, -1);
    for (int j = 0; j < kinds; ++j) {
        if (is_free(j)) continue;
        const auto same = std::ranges::find_if(owner, [&](int first) { return equal_prices(first, j); });
        tariff[j] = static_cast<int>(same - owner.begin());
        if (same == owner.end()) owner.push_back(j);
    }
    tariffs = static_cast<int>(owner.size());
    for (std::int64_t t = 0; t < tensors(); ++t)
        for (const int j : owner) {
            tariff_receive_ticks.push_back(given.receive_ticks[t * kinds + j]);
            tariff_send_ticks.push_back(given.send_ticks[t * kinds + j]);
        }
}

void Stages::take_weights(const StagesArrays& given) {
    weight_bytes = copy(given.weight_bytes);
    own_bytes.assign(nodes, 0);
    const Lists users{copy(given.user_first), copy(given.users)};
    const auto count = static_cast<std::int32_t>(weight_bytes.size());
    for (std::int32_t w = 0; w < count; ++w)
        if (users[w].size() == 1) own_bytes[users[w].front()] += weight_bytes[w];
    shared_weights = make_lists(nodes, [&](auto add) {
        for (std::int32_t w = 0; w < count; ++w)
            if (users[w].size() > 1)
                for (const std::int32_t v : users[w]) add(v, w);
    });
}

}  // namespace stead
