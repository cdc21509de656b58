#include "bounds/cut_path.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "base/fail.h"

namespace stead {

namespace {

bool reads(const Problem& problem, std::int32_t v, std::int32_t t) {
    const auto begin = problem.consumer.begin();
    return std::binary_search(begin + problem.consumer_first[t], begin + problem.consumer_first[t + 1], v);
}

std::int64_t size(const Problem& problem, std::int32_t t) {
    return problem.timed_by_tensor() ? problem.tensor_ticks[t] : problem.tensor_bytes[t];
}

/// The largest tensor that `from` hands to `to`.
std::int32_t carried(const Problem& problem, std::int32_t from, std::int32_t to) {
    std::int32_t found = -1;
    for (std::int32_t t = problem.tensor_first[from]; t < problem.tensor_first[from + 1]; ++t)
        if ((found < 0 || size(problem, t) > size(problem, found)) && reads(problem, to, t)) found = t;
    if (found < 0) fail("operator ", to, " reads nothing of operator ", from, ": not a path");
    return found;
}

/// Bytes of the weights that no earlier operator of the path uses, summed up: [operator of the path + 1].
std::vector<std::int64_t> weight_sums(const Problem& problem, std::span<const std::int32_t> path) {
    std::vector<std::size_t> place(problem.operators, path.size());
    for (std::size_t i = 0; i < path.size(); ++i) place[path[i]] = i;
    std::vector<std::int64_t> sums(path.size() + 2, 0);
    for (std::int32_t w = 0; w < problem.weights; ++w) {
        std::size_t first = path.size();
        for (std::int32_t at = problem.weight_user_first[w]; at < problem.weight_user_first[w + 1]; ++at)
            first = std::min(first, place[problem.weight_user[at]]);
        sums[first + 1] += problem.weight_bytes[w];
    }
    for (std::size_t i = 0; i + 1 < sums.size(); ++i) sums[i + 1] += sums[i];
    return sums;
}

/// Where runs on one device may have begun, the cheapest that still fits in front.
class Starts {
public:
    void add(std::size_t at, Ticks before) {
        while (!waiting_.empty() && waiting_.back().second >= before) waiting_.pop_back();
        waiting_.emplace_back(at, before);
    }

    template <class Fits>
    Ticks best(Fits fits) {
        while (!waiting_.empty() && !fits(waiting_.front().first)) waiting_.pop_front();
        return waiting_.empty() ? never : waiting_.front().second;
    }

    void clear() { waiting_.clear(); }

private:
    std::deque<std::pair<std::size_t, Ticks>> waiting_;  // (operator of the path, ticks before it less work before it)
};

}  // namespace

std::vector<std::int32_t> heaviest_path(const Problem& problem, std::span<const double> weight) {
    std::vector<double> total(weight.begin(), weight.end());
    std::vector<std::int32_t> before(problem.operators, -1), path;
    for (std::int32_t t = 0; t < problem.tensors; ++t)  // by producer, whose total is final
        for (std::int32_t at = problem.consumer_first[t]; at < problem.consumer_first[t + 1]; ++at) {
            const std::int32_t u = problem.producer[t], v = problem.consumer[at];
            if (total[u] + weight[v] > total[v]) total[v] = total[u] + weight[v], before[v] = u;
        }
    if (total.empty()) return path;
    auto v = static_cast<std::int32_t>(std::max_element(total.begin(), total.end()) - total.begin());
    for (; v >= 0; v = before[v]) path.push_back(v);
    std::reverse(path.begin(), path.end());
    return path;
}

Ticks least_run_ticks(const Problem& problem, std::span<const std::int32_t> path, Crossing crossing) {
    const int devices = problem.devices;
    const std::vector<std::int64_t> sums = weight_sums(problem, path);
    std::vector<Starts> starts(devices);
    std::vector<Ticks> done(devices, 0), finish(devices, path.empty() ? 0 : never);
    for (Starts& one : starts) one.add(0, 0);
    for (std::size_t i = 0; i < path.size(); ++i) {
        for (int d = 0; d < devices; ++d) {
            const Ticks own = problem.duration[static_cast<std::size_t>(path[i]) * devices + d];
            finish[d] = never;
            if (own == impossible) {
                starts[d].clear();
                continue;
            }
            done[d] += own;
            const auto fits = [&](std::size_t begin) { return sums[i + 1] - sums[begin] <= problem.memory_bytes[d]; };
            const Ticks before = starts[d].best(fits);
            if (before != never) finish[d] = before + done[d];
        }
        if (i + 1 == path.size()) break;
        const std::int32_t t = carried(problem, path[i], path[i + 1]);
        for (int d = 0; d < devices; ++d) {
            Ticks arrive = never;
            for (int s = 0; s < devices; ++s) {
                if (s == d || finish[s] == never) continue;
                const Ticks way = crossing_ticks(problem, t, s, d, crossing);
                if (way != never) arrive = std::min(arrive, finish[s] + way);
            }
            if (arrive != never) starts[d].add(i + 1, arrive - done[d]);
        }
    }
    return *std::min_element(finish.begin(), finish.end());
}

}  // namespace stead
