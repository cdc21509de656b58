#include "stages/remaining_work.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace stead {
namespace {

constexpr std::int64_t limit = std::int64_t{1} << 62;

/// Conditions stay necessary when work is rounded down and capacity up: this much covers the errors of both.
constexpr double slack = 1e-14;

std::int64_t rounded_down(double weight, Ticks ticks) {
    if (weight == 1.0) return ticks;
    return static_cast<std::int64_t>(std::floor(weight * static_cast<double>(ticks) * (1 - slack)));
}

std::int64_t rounded_up(double weight, Ticks ticks) {
    if (weight == 1.0) return ticks;
    return static_cast<std::int64_t>(std::ceil(weight * static_cast<double>(ticks) * (1 + slack)));
}

std::int64_t saturating_add(std::int64_t sum, std::int64_t term, std::int64_t times) {
    return times != 0 && term > (limit - sum) / times ? limit : sum + term * times;
}

/// Beyond 32 MiB, what comes after each node is not worth finding.
constexpr std::int64_t most_closure_words = std::int64_t{1} << 22;

/// How much faster than the reference each kind is: at most, on average; and as if only the reference counted.
std::array<std::vector<double>, 3> speeds_of(const Stages& stages, int reference) {
    std::vector<double> fastest(stages.kinds, 0.0), average = fastest, only = fastest;
    for (int j = 0; j < stages.kinds; ++j) {
        double work = 0, reference_work = 0;
        for (std::int32_t v = 0; v < stages.nodes; ++v) {
            if ((stages.runs_on[v] >> j & stages.runs_on[v] >> reference & 1) == 0) continue;
            const auto ticks = static_cast<double>(stages.total_ticks(v, j));
            const auto reference_ticks = static_cast<double>(stages.total_ticks(v, reference));
            work += ticks;
            reference_work += reference_ticks;
            if (ticks > 0) fastest[j] = std::max(fastest[j], reference_ticks / ticks);
        }
        if (work > 0) average[j] = reference_work / work;
    }
    fastest[reference] = average[reference] = only[reference] = 1.0;
    return {fastest, average, only};
}

std::vector<double> normalised(std::vector<double> weights) {
    const double largest = *std::ranges::max_element(weights);
    for (double& weight : weights) weight /= largest;
    return weights;
}

bool nearly_equal(const std::vector<double>& a, const std::vector<double>& b) {
    return std::ranges::equal(a, b, [](double x, double y) { return std::abs(x - y) <= 1e-9; });
}

}  // namespace

DeviceCounts::DeviceCounts(const Stages& stages, int replicas) : count_(stages.kind_count) {
    const std::int64_t useful = std::int64_t{stages.nodes} * replicas;
    for (std::int32_t& count : count_) {
        count = static_cast<std::int32_t>(std::min<std::int64_t>(count, useful));
        step_.push_back(states_);
        const std::int64_t digits = std::int64_t{count} + 1;
        states_ = states_ > never / digits ? never : states_ * digits;
    }
}

WorkWindows::WorkWindows(const Stages& stages, const DeviceCounts& counts, LoadKind load)
    : stages_(stages), counts_(counts),
      receiving_adds_up_(load == LoadKind::sum || load == LoadKind::fwbw) {
    measures_ = candidates();
    if (stages.total_bytes > *std::ranges::min_element(stages.kind_memory)) measures_.emplace_back();
    count_ = static_cast<int>(measures_.size());
    find_work();
    find_work_from();
}

/// The weights that promise the highest bounds: with each kind as reference, the others by their largest and by their
/// average speed, or not at all, which counts what only the reference can run.
std::vector<WorkWindows::Weights> WorkWindows::candidates() const {
    std::vector<Weights> all;
    for (int reference = 0; reference < stages_.kinds; ++reference) {
        if (stages_.kind_count[reference] == 0) continue;
        for (const auto& speeds : speeds_of(stages_, reference)) {
            Weights weights = normalised(speeds);
            if (!std::ranges::any_of(all, [&](const Weights& other) { return nearly_equal(weights, other); }))
                all.push_back(std::move(weights));
        }
    }
    std::erase_if(all, [&](const Weights& weights) { return least_ticks(weights) <= 0; });
    std::ranges::stable_sort(all, std::greater(), [&](const Weights& weights) { return least_ticks(weights); });
    if (all.size() > most_measures - 1) all.resize(most_measures - 1);
    return all;
}

std::int64_t WorkWindows::work_of(const Weights& weights, std::int32_t v) const {
    if (stages_.runs_on[v] == 0) return 0;  // found out soon enough
    std::int64_t least = limit;
    for_each_kind(stages_.runs_on[v],
                  [&](int j) { least = std::min(least, rounded_down(weights[j], stages_.total_ticks(v, j))); });
    return least;
}

double WorkWindows::least_ticks(const Weights& weights) const {
    double work = 0, speed = 0;
    for (std::int32_t v = 0; v < stages_.nodes; ++v) work += static_cast<double>(work_of(weights, v));
    for (int j = 0; j < stages_.kinds; ++j) speed += stages_.kind_count[j] * weights[j];
    return work / speed;
}

void WorkWindows::find_work() {
    work_.assign(stages_.nodes, Work{});
    for (int m = 0; m < measures(); ++m) {
        const std::vector<std::int64_t> bytes = measures_[m].empty() ? bytes_of_nodes() : std::vector<std::int64_t>();
        for (std::int32_t v = 0; v < stages_.nodes; ++v) {
            work_[v][m] = measures_[m].empty() ? bytes[v] : work_of(measures_[m], v);
            total_[m] += work_[v][m];
        }
    }
}

/// A shared weight is needed at least once by those of its users that are left, however few: each counts its share.
std::vector<std::int64_t> WorkWindows::bytes_of_nodes() const {
    std::vector<std::int64_t> users(stages_.weight_bytes.size(), 0), bytes = stages_.own_bytes;
    for (const std::int32_t w : stages_.shared_weights.items) ++users[w];
    for (std::int32_t v = 0; v < stages_.nodes; ++v)
        for (const std::int32_t w : stages_.shared_weights[v]) bytes[v] += stages_.weight_bytes[w] / users[w];
    return bytes;
}

void WorkWindows::find_work_from() {
    work_from_ = work_;
    const std::size_t words = (stages_.nodes + 63) / 64;
    if (static_cast<std::int64_t>(words) * stages_.nodes > most_closure_words) return;  // a weaker bound will do
    std::vector<std::uint64_t> after(words * stages_.nodes, 0);                         // [node, word]; with itself
    for (std::int32_t v = stages_.nodes - 1; v >= 0; --v) {
        std::uint64_t* const row = &after[v * words];
        row[v / 64] |= std::uint64_t{1} << v % 64;
        for (const std::int32_t next : stages_.successors[v])
            for (std::size_t i = 0; i < words; ++i) row[i] |= after[next * words + i];
        work_from_[v] = {};
        for (std::size_t i = 0; i < words; ++i)
            for (std::uint64_t word = row[i]; word != 0; word &= word - 1)
                for (int m = 0; m < measures(); ++m) work_from_[v][m] += work_[64 * i + std::countr_zero(word)][m];
    }
}

void WorkWindows::cut(Ticks cutoff) {
    needed_.resize(counts_.states());
    for (int m = 0; m < measures(); ++m) {
        std::vector<std::int64_t> capacity(stages_.kinds);
        for (int j = 0; j < stages_.kinds; ++j)
            capacity[j] = measures_[m].empty() ? stages_.kind_memory[j]
                                               : rounded_up(measures_[m][j], cutoff - 1);
        for (std::int64_t state = 0; state < counts_.states(); ++state) {
            std::int64_t room = 0;
            for (int j = 0; j < stages_.kinds; ++j) room = saturating_add(room, capacity[j], counts_.left(state, j));
            needed_[state][m] = total_[m] - room;
        }
    }
}

WorkWindows::Work WorkWindows::receiving(std::int32_t t, Kinds kinds) const {
    Work work{};
    if (!receiving_adds_up_ || kinds == 0) return work;
    for (int m = 0; m < measures(); ++m) {
        if (measures_[m].empty()) continue;
        work[m] = limit;
        for_each_kind(kinds, [&](int j) {
            const Ticks ticks = stages_.receive_ticks[std::int64_t{t} * stages_.kinds + j];
            work[m] = std::min(work[m], rounded_down(measures_[m][j], ticks));
        });
    }
    return work;
}

Ticks WorkWindows::least_ticks(std::int64_t state, const Work& done) const {
    double least = 0;
    for (int m = 0; m < measures(); ++m) {
        const double rest = static_cast<double>(total_[m] - done[m]);
        double speed = 0;
        for (int j = 0; j < stages_.kinds; ++j)
            speed += counts_.left(state, j) * (measures_[m].empty() ? static_cast<double>(stages_.kind_memory[j])
                                                                    : measures_[m][j]);
        if (rest > speed * (1 + slack) && measures_[m].empty()) return never;
        if (rest <= 0 || measures_[m].empty()) continue;
        if (speed == 0) return never;
        least = std::max(least, rest / speed);
    }
    return static_cast<Ticks>(std::floor(least * (1 - slack)));
}

}  // namespace stead
