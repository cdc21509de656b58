#include "sim/order_checks.h"

#include <algorithm>
#include <limits>

#include "base/fail.h"
#include "base/placement.h"

namespace stead {
namespace {

constexpr std::int32_t absent = -1;

}  // namespace

void check_unused(const char* name, std::span<const std::int32_t> order) {
    if (!order.empty()) fail("this policy takes no ", name, ", got one of ", order.size(), " entries");
}

OrderCheck::OrderCheck(const Problem& problem) : problem_(problem) {}

void OrderCheck::permutation(const char* name, std::span<const std::int32_t> order, std::int64_t count) {
    if (static_cast<std::int64_t>(order.size()) != count) fail(name, " needs ", count, " entries, got ", order.size());
    rank_.assign(count, absent);
    for (std::int32_t i = 0; i < count; ++i) {
        const std::int32_t item = order[i];
        if (item < 0 || item >= count)
            fail(name, " must be a permutation of 0..", count - 1, ", but entry ", i, " is ", item);
        if (rank_[item] != absent)
            fail(name, " must be a permutation, but entries ", rank_[item], " and ", i, " are both ", item);
        rank_[item] = i;
    }
}

void OrderCheck::topological(std::span<const std::int32_t> order) {
    permutation("order", order, problem_.operators);
    for (std::int32_t t = 0; t < problem_.tensors; ++t) {
        const std::int32_t p = problem_.producer[t];
        for (std::int32_t i = problem_.consumer_first[t]; i < problem_.consumer_first[t + 1]; ++i) {
            const std::int32_t reader = problem_.consumer[i];
            if (rank_[reader] < rank_[p])
                fail("order must be topological, but operator ", reader, " stands before operator ", p,
                     ", whose tensor ", t, " it reads");
        }
    }
}

void OrderCheck::items(std::span<const std::int32_t> items, const DeviceIndex* placement) {
    const std::int64_t n = problem_.operators, k = problem_.devices;
    const std::int64_t count = n + problem_.tensors * k;
    if (count > std::numeric_limits<std::int32_t>::max())
        fail("too many tensors and devices to number their transfers");
    need_ = problem_.inputs;
    sent_.assign(problem_.tensors * k, false);
    std::int64_t ran = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
        const std::int64_t item = items[i];
        if (item < 0 || item >= count) fail("order must hold items of 0..", count - 1, ", but entry ", i, " is ", item);
        if (item < n) {
            run_item(static_cast<std::int32_t>(item), placement);
            ++ran;
        } else {
            send_item(static_cast<std::int32_t>((item - n) / k), static_cast<int>((item - n) % k), placement);
        }
    }
    if (ran < n) {
        const auto missing = std::find_if(need_.begin(), need_.end(), [](std::int32_t need) { return need != absent; });
        fail("order must list every operator, but operator ", missing - need_.begin(), " is missing");
    }
}

void OrderCheck::run_item(std::int32_t v, const DeviceIndex* placement) {
    if (need_[v] == absent) fail("order must list every operator once, but operator ", v, " stands there twice");
    if (need_[v] > 0)
        fail("order lists operator ", v, " before ", need_[v],
             " of the tensors it reads have been produced on or sent to its device ", +placement[v]);
    need_[v] = absent;
    for (std::int32_t t = problem_.tensor_first[v]; t < problem_.tensor_first[v + 1]; ++t)
        for_each_reader_on(problem_, placement, t, placement[v], problem_.consumer_first[t],
                           [&](std::int32_t reader) { --need_[reader]; });
}

void OrderCheck::send_item(std::int32_t t, int target, const DeviceIndex* placement) {
    const std::int32_t p = problem_.producer[t];
    const std::int32_t first = first_reader_on(problem_, placement, t, target);
    if (target == placement[p] || first < 0) return;
    if (need_[p] != absent) fail("order sends tensor ", t, " to device ", target, " before its producer, operator ", p);
    const std::int64_t way = std::int64_t{t} * problem_.devices + target;
    if (sent_[way]) fail("order sends tensor ", t, " to device ", target, " twice");
    sent_[way] = true;
    for_each_reader_on(problem_, placement, t, target, first, [&](std::int32_t reader) { --need_[reader]; });
}

}  // namespace stead
