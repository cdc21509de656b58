#include "build/list_schedule.h"

#include <numeric>

#include "base/fail.h"
#include "base/watch.h"
#include "build/builder.h"

namespace stead {

std::vector<ListSchedule> list_schedules(const ListTables& tables, std::span<const ListVariant> variants,
                                         std::span<const std::int64_t> limit_bytes, double seconds,
                                         const Workers& workers) {
    if (static_cast<std::int64_t>(limit_bytes.size()) != tables.problem.devices)
        fail("limit_bytes needs ", tables.problem.devices, " entries, one per device, got ", limit_bytes.size());
    Watch watch(seconds, workers);
    const SharedRanks ranks(tables.problem, variants);
    std::vector<ListSchedule> results(variants.size());
    std::vector<std::int64_t> rows(variants.size());
    std::iota(rows.begin(), rows.end(), 0);
    run_rows(rows, workers, [&]() -> RowTask {
        return [&](std::int64_t row) {
            try {
                results[row] = Builder(tables, ranks, variants[row], limit_bytes, watch).build();
            } catch (const Late&) {
                results[row] = {std::vector<DeviceIndex>(tables.problem.operators),
                                std::vector<std::int32_t>(tables.problem.operators), ListSchedule::not_built};
            }
        };
    });
    return results;
}

}  // namespace stead
