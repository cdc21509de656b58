#include "base/overflow.h"

#include <algorithm>
#include <vector>

#include "base/fail.h"

namespace stead {
namespace {

constexpr std::int64_t limit = std::int64_t{1} << 62;

// Sums and products of values in 0..limit that stop at `limit` instead of overflowing.
std::int64_t saturating_add(std::int64_t a, std::int64_t b) { return a > limit - b ? limit : a + b; }
std::int64_t saturating_multiply(std::int64_t a, std::int64_t times) {
    return times != 0 && a > limit / times ? limit : a * times;
}

/// A sum that remembers its largest term, so that an overflow can be explained.
class Total {
public:
    void add(std::int64_t term, const char* kind, std::int64_t index) {
        sum_ = saturating_add(sum_, term);
        if (term <= largest_) return;
        largest_ = term;
        kind_ = kind;
        index_ = index;
    }
    std::int64_t checked(const char* what) const {
        if (sum_ >= limit) fail(what, "; the largest term is ", kind_, " ", index_, " with ", largest_);
        return sum_;
    }

private:
    std::int64_t sum_ = 0;
    std::int64_t largest_ = -1;
    const char* kind_ = "";
    std::int64_t index_ = 0;
};

/// The slowest of several links for tensors of any size: only those that no other link dominates are kept.
class SlowestLink {
public:
    explicit SlowestLink(const Problem& problem) : problem_(problem) {}

    void consider(const Link& link) {
        if (link.latency == impossible) return;
        const auto dominates = [&](const Link& a, const Link& b) { return rate(a) >= rate(b) && fixed(a) >= fixed(b); };
        for (const Link& kept : kept_)
            if (dominates(kept, link)) return;
        std::erase_if(kept_, [&](const Link& kept) { return dominates(link, kept); });
        kept_.push_back(link);
    }

    Ticks ticks(std::int32_t t) const {
        Ticks most = 0;
        for (const Link& link : kept_) most = std::max(most, saturating_add(wire(t, link), fixed(link)));
        return most;
    }

private:
    double rate(const Link& link) const { return problem_.timed_by_tensor() ? link.hops : link.ps_per_byte; }
    static Ticks fixed(const Link& link) { return saturating_add(link.latency, link.gap); }
    Ticks wire(std::int32_t t, const Link& link) const {
        return problem_.timed_by_tensor()
                   ? saturating_multiply(problem_.tensor_ticks[t], link.hops)
                   : saturating_round(static_cast<double>(problem_.tensor_bytes[t]) * link.ps_per_byte);
    }

    const Problem& problem_;
    std::vector<Link> kept_;
};

void add_longest_durations(const Problem& problem, Total& total) {
    for (std::int32_t v = 0; v < problem.operators; ++v) {
        const auto row = problem.duration.begin() + static_cast<std::int64_t>(v) * problem.columns;
        total.add(std::max<Ticks>(0, *std::max_element(row, row + problem.columns)), "operator", v);
    }
}

constexpr const char* too_long = "times add up to 2^62 picoseconds (53 days) or more";

}  // namespace

Ticks saturating_round(double ticks) { return ticks < static_cast<double>(limit) ? std::llrint(ticks) : limit; }

Ticks find_horizon(const Problem& problem) {
    SlowestLink slowest(problem);
    for (int s = 0; s < problem.devices; ++s)
        for (int d = 0; d < problem.devices; ++d)
            if (s != d) slowest.consider(problem.link(s, d));
    Total total;
    add_longest_durations(problem, total);
    for (std::int32_t t = 0; t < problem.tensors; ++t)
        total.add(saturating_multiply(slowest.ticks(t), problem.devices - 1), "tensor", t);
    return total.checked(too_long);
}

void check_host_horizon(const Problem& problem) {
    SlowestLink slowest(problem);
    for (int d = 0; d < problem.devices; ++d) {
        slowest.consider(problem.host_write[d]);
        slowest.consider(problem.host_read[d]);
    }
    Total total;
    add_longest_durations(problem, total);
    for (std::int32_t t = 0; t < problem.tensors; ++t) {
        const std::int64_t readers = problem.consumer_first[t + 1] - problem.consumer_first[t];
        total.add(saturating_multiply(slowest.ticks(t), readers + 1), "tensor", t);
    }
    total.checked(too_long);
}

std::int64_t all_bytes(const Problem& problem) {
    Total total;
    for (std::int32_t w = 0; w < problem.weights; ++w) total.add(problem.weight_bytes[w], "weight", w);
    for (std::int32_t t = 0; t < problem.tensors; ++t) total.add(problem.tensor_bytes[t], "tensor", t);
    const auto workspace = std::max_element(problem.workspace_bytes.begin(), problem.workspace_bytes.end());
    if (workspace != problem.workspace_bytes.end())
        total.add(*workspace, "workspace of operator", (workspace - problem.workspace_bytes.begin()) / problem.columns);
    return total.checked("bytes add up to 2^62 or more");
}

}  // namespace stead
