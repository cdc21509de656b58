// Random changes judged by a decoder: the makespan is that of a full simulation, however channels send.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "search/decoder.h"
#include "tests/draft.h"
#include "tests/expect.h"
#include "tests/simulated.h"

using namespace stead;

namespace {

/// Two or three outputs each, read nearby or far away; devices and links differ.
Draft random_layers(std::mt19937_64& random, int operators) {
    static const std::vector<std::string> presets{"none", "link", "pair", "sender", "receiver", "bus"};
    Draft draft(3, presets[random() % presets.size()], static_cast<double>(random() % 2), 1,
                static_cast<double>(random() % 2));
    for (int v = 0; v < operators; ++v) {
        std::vector<Draft::Tensor> tensors(random() % 3);
        for (Draft::Tensor& tensor : tensors) {
            tensor.bytes = static_cast<std::int64_t>(random() % 4 * 1000);
            for (int reader = v + 1; reader < std::min(operators, v + 8); ++reader)
                if (random() % 5 == 0) tensor.readers.push_back(reader);
            const int far = v + 8 + static_cast<int>(random() % operators);
            if (far < operators && random() % 3 == 0) tensor.readers.push_back(far);
        }
        draft.op(static_cast<double>(random() % 5), tensors);
    }
    for (double& seconds : draft.seconds) seconds += 1e-6 * static_cast<double>(random() % 3);
    for (int i = 0; i < 9; ++i)
        if (i % 4 != 0 && random() % 40 == 0) draft.latency[i] = inf;
    return draft;
}

/// What a simulation of all operators says; `never` where a tensor has no way.
Ticks simulated(const Problem& problem, const Row& placement, const Order& order, Sends sends) {
    const bool listed = sends == Sends::by_reader;
    const Order items = listed ? list_sends(problem, placement, order) : order;
    const Ticks ticks = run(problem, placement, Policy::program_order, items, {}, listed).makespan;
    return ticks < 0 ? never : ticks;
}

/// An operator somewhere else, as far as what it depends on allows.
void shift(Decoder& decoder, const Problem& problem, std::mt19937_64& random) {
    const std::int32_t from = decoder.first() + random() % (decoder.last() - decoder.first());
    Order span{decoder.order()[from]};
    const auto depend = [&](std::int32_t v, std::int32_t reader) {
        for (std::int32_t t = problem.tensor_first[v]; t < problem.tensor_first[v + 1]; ++t)
            for (std::int32_t c = problem.consumer_first[t]; c < problem.consumer_first[t + 1]; ++c)
                if (problem.consumer[c] == reader) return true;
        return false;
    };
    for (std::int32_t to = from + 1; to < decoder.last() && random() % 12; ++to) {
        if (depend(span.back(), decoder.order()[to])) break;
        span.insert(span.end() - 1, decoder.order()[to]);
    }
    decoder.arrange(from, span);
}

void every_change_is_judged_as_a_simulation_would(Sends sends, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const int n = 40 + static_cast<int>(random() % 120);
    const Problem problem = random_layers(random, n).build();
    const DecodeTables tables(problem);
    Decoder decoder(problem, tables);
    Row placement(n);
    Order order(n);
    std::iota(order.begin(), order.end(), 0);
    for (DeviceIndex& d : placement) d = static_cast<DeviceIndex>(random() % 3);
    if (simulated(problem, placement, order, sends) == never) std::ranges::fill(placement, 0);
    decoder.load(placement.data(), order.data(), sends);
    for (int move = 0; move < 120; ++move) {
        if (random() % 10 == 0) {
            const auto first = static_cast<std::int32_t>(random() % n);
            decoder.open(first, first + 1 + static_cast<std::int32_t>(random() % (n - first)));
        }
        for (std::uint64_t count = random() % 4; count > 0; --count)
            decoder.place(decoder.order()[random() % decoder.last()], static_cast<int>(random() % 3));
        if (random() % 2) shift(decoder, problem, random);
        const Ticks exact = simulated(problem, decoder.placement(), decoder.order(), sends);
        const Ticks threshold = random() % 3 ? never - 1 : decoder.makespan();
        const Ticks expected = exact <= threshold ? exact : never;
        const bool hasty = threshold != never - 1 && random() % 2;  // then it may give up in vain
        const Ticks judged = hasty ? decoder.evaluate(threshold, ticks(random() % 3)) : decoder.evaluate(threshold);
        CHECK(judged == expected || (hasty && judged == never));
        if (judged != never && random() % 2) {
            decoder.keep();
            CHECK(decoder.makespan() == exact);
        } else {
            decoder.drop();
        }
    }
}

/// 0 sends 8,000 bytes to 2 and 1,000 to 1, which runs first: 1 + 8 + 1 + 1 us until 1 starts by producers, 1 + 1 + 1
/// by readers.
void what_is_read_first_is_sent_first() {
    const Problem problem =
        Draft(2, "link", 1, 1).op(1, {{8000, {2}}, {1000, {1}}}).op(9).op(1).build();
    const DecodeTables tables(problem);
    Decoder decoder(problem, tables);
    const Row placement{0, 1, 1};
    const Order order{0, 1, 2};
    decoder.load(placement.data(), order.data(), Sends::by_producer);
    CHECK(decoder.makespan() == ticks(21));
    decoder.load(placement.data(), order.data(), Sends::by_reader);
    CHECK(decoder.makespan() == ticks(13));
    CHECK((list_sends(problem, placement, order) == Order{0, 3 + 1 * 2 + 1, 1, 3 + 0 * 2 + 1, 2}));
}

}  // namespace

void test_decode() {
    what_is_read_first_is_sent_first();
    for (std::uint64_t seed = 0; seed < 400; ++seed)
        for (const Sends sends : {Sends::by_producer, Sends::by_reader})
            every_change_is_judged_as_a_simulation_would(sends, seed);
}
