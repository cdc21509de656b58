#include "build/list_tables.h"

#include <algorithm>

#include "base/fail.h"

namespace stead {

namespace {

/// Adds a row with each of `items` once.
void append_distinct(std::vector<std::int32_t>& items, Rows& rows) {
    std::sort(items.begin(), items.end());
    items.erase(std::unique(items.begin(), items.end()), items.end());
    rows.items.insert(rows.items.end(), items.begin(), items.end());
    rows.first.push_back(static_cast<std::int32_t>(rows.items.size()));
}

std::int32_t count_units(const Problem& problem, std::span<const std::int32_t> unit_of) {
    if (static_cast<std::int64_t>(unit_of.size()) != problem.operators)
        fail("unit_of needs ", problem.operators, " entries, one per operator, got ", unit_of.size());
    std::int32_t count = 0;
    for (const std::int32_t unit : unit_of) {
        if (unit < 0 || unit >= problem.operators) fail("unit_of has a unit ", unit, ", numbers begin at 0");
        count = std::max(count, unit + 1);
    }
    return count;
}

}  // namespace

ListTables::ListTables(const Problem& given, std::span<const std::int32_t> units)
    : problem(given), unit_of(units.begin(), units.end()),
      reads(transposed(given.operators, given.consumer_first, given.consumer)) {
    take_units(units);
    take_memory();
}

void ListTables::take_units(std::span<const std::int32_t> units) {
    const std::int32_t count = count_units(problem, units);
    const int k = problem.devices;
    members = rows_by_label(count, unit_of);
    allowed.assign(count, k == mask_devices ? ~std::uint64_t{0} : (std::uint64_t{1} << k) - 1);
    for (std::int32_t v = 0; v < problem.operators; ++v)
        for (int d = 0; d < k; ++d)
            if (problem.duration[std::int64_t{v} * k + d] == impossible)
                allowed[unit_of[v]] &= ~(std::uint64_t{1} << d);
    for (std::int32_t unit = 0; unit < count; ++unit) {
        if (members[unit].empty()) fail("unit_of leaves out unit ", unit);
        if (!allowed[unit]) fail("no device can run all operators of unit ", unit);
    }
}

void ListTables::take_memory() {
    const std::int32_t count = static_cast<std::int32_t>(allowed.size());
    std::vector<std::uint8_t> long_lived(problem.tensors);
    held_bytes.assign(count, 0);
    for (std::int32_t t = 0; t < problem.tensors; ++t) {
        const std::int32_t p = problem.producer[t], end = problem.consumer_first[t + 1];
        long_lived[t] = problem.tensor_kept[t];
        for (std::int32_t i = problem.consumer_first[t]; i < end && !long_lived[t]; ++i)
            long_lived[t] = problem.phase[problem.consumer[i]] > problem.phase[p];
        if (long_lived[t]) held_bytes[unit_of[p]] += problem.tensor_bytes[t];
    }
    const Rows weights_of = transposed(problem.operators, problem.weight_user_first, problem.weight_user);
    std::vector<std::int32_t> used, read;
    weights.first.assign(1, 0);
    long_reads.first.assign(1, 0);
    for (std::int32_t unit = 0; unit < count; ++unit) {
        used.clear();
        read.clear();
        for (const std::int32_t v : members[unit]) {
            used.insert(used.end(), weights_of[v].begin(), weights_of[v].end());
            for (const std::int32_t t : reads[v])
                if (long_lived[t] && unit_of[problem.producer[t]] != unit) read.push_back(t);
        }
        append_distinct(used, weights);
        append_distinct(read, long_reads);
    }
}

}  // namespace stead
