// Tests of problems and of threads that share rows.
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

#include "base/workers.h"
#include "tests/draft.h"
#include "tests/expect.h"

using namespace stead;

namespace {

void bad_problems_are_refused() {
    const Draft good = memory_draft();
    const auto bad = [&](const std::function<void(Draft&)>& spoil) {
        Draft draft = good;
        spoil(draft);
        return refused([&] { draft.build(); });
    };
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(!bad([](Draft&) {}));
    CHECK(bad([](Draft& x) { x.seconds[3] = nan; }));
    CHECK(bad([](Draft& x) { x.seconds[3] = -1; }));
    CHECK(bad([](Draft& x) { x.seconds[3] = 1e30; }));
    CHECK(bad([](Draft& x) { x.seconds.pop_back(); }));
    CHECK(bad([](Draft& x) { x.workspace[0] = -1; }));
    CHECK(bad([](Draft& x) { x.workspace[0] = std::numeric_limits<std::int64_t>::max(); }));
    CHECK(bad([](Draft& x) { x.tensor_first[1] = 3; }));
    CHECK(bad([](Draft& x) { x.tensor_first[0] = 1; }));
    CHECK(bad([](Draft& x) { x.tensor_first.back() = 5; }));
    CHECK(bad([](Draft& x) { x.bytes[0] = -4; }));
    CHECK(bad([](Draft& x) { x.bytes[0] = x.bytes[1] = std::int64_t{1} << 61; }));
    CHECK(bad([](Draft& x) { x.kept[0] = 2; }));
    CHECK(bad([](Draft& x) { x.consumer[0] = 0; }));  // reads its own output
    CHECK(bad([](Draft& x) { x.consumer[1] = 1; }));  // listed twice
    CHECK(bad([](Draft& x) { x.consumer[1] = 4; }));  // no such operator
    CHECK(bad([](Draft& x) { x.consumer[2] = -1; }));
    CHECK(bad([](Draft& x) { x.user[2] = x.user[3] = 2; }));
    CHECK(bad([](Draft& x) { x.weight_bytes[0] = -1; }));
    CHECK(bad([](Draft& x) { x.latency[1] = nan; }));
    CHECK(bad([](Draft& x) { x.speed[1] = 0; }));
    CHECK(bad([](Draft& x) { x.speed[1] = 1e-300; }));
    CHECK(bad([](Draft& x) { x.gap[1] = inf; }));
    CHECK(bad([](Draft& x) { x.channel[1] = -3; }));
    CHECK(bad([](Draft& x) { x.hops[1] = -1; }));
    CHECK(bad([](Draft& x) { x.memory[1] = -1; }));
    CHECK(bad([](Draft& x) { x.tensor_seconds = {1}; }));
    CHECK(bad([](Draft& x) { x.tensor_seconds.assign(4, inf); }));
    CHECK(bad([](Draft& x) { x.phase[0] = 3; }));
    CHECK(bad([](Draft& x) { x.host[0] = 2; }));
    CHECK(bad([](Draft& x) { x.routing = 2; }));
    CHECK(bad([](Draft& x) { x.host_speed[0] = -1; }));
    CHECK(bad([](Draft& x) { x.devices = 0; }));
    CHECK(refused([] { Draft(max_devices + 1, "link", 1, 1).build(); }));
    CHECK(!bad([](Draft& x) { x.latency[0] = nan; }));  // the diagonal is ignored
    CHECK(!bad([](Draft& x) {
        x.latency[1] = inf;
        x.speed[1] = 0;
    }));  // there is no such link
}

void a_batch_can_be_interrupted() {
    std::vector<std::int64_t> rows(64);
    std::iota(rows.begin(), rows.end(), 0);
    bool interrupted = false;
    try {
        run_rows(rows, {2, [] { return true; }},
                 [] { return [](std::int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }; });
    } catch (const Interrupted&) {
        interrupted = true;
    }
    CHECK(interrupted);
}

}  // namespace

void test_base() {
    bad_problems_are_refused();
    a_batch_can_be_interrupted();
}
