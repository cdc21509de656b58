#include "bounds/heads_and_tails.h"

#include <algorithm>
#include <utility>

namespace stead {

namespace {

Ticks later(Ticks moment, Ticks delay) { return moment == never || delay == never ? never : moment + delay; }

bool same_way(const Link& a, const Link& b) {
    return a.latency == b.latency && a.ps_per_byte == b.ps_per_byte && a.hops == b.hops;
}

/// One pass over a Precedence, node by node, with what is known about the nodes before.
class Pass {
public:
    Pass(const Precedence& graph, const Prices& prices, int reach, Watch& watch)
        : watch_(watch),
          pace_(watch),
          graph_(graph),
          prices_(prices),
          reach_(reach),
          ready_(static_cast<std::size_t>(graph.nodes) * graph.devices, 0),
          begin_(graph.nodes),
          finish_(graph.nodes),
          price_(graph.nodes),
          seen_(graph.nodes, -1),
          chain_(graph.nodes),
          leave_(graph.nodes),
          alone_(graph.devices),
          stretched_(graph.devices) {}

    std::vector<Ticks> run() {
        for (std::int32_t v = 0; v < graph_.nodes; ++v) {
            arrive(v);
            if (reach_ > 0 && !watch_.stopped() && joins(v)) look_back(v);
            settle(v);
        }
        return std::move(ready_);
    }

private:
    Ticks* ready(std::int32_t v) { return &ready_[static_cast<std::size_t>(v) * graph_.devices]; }
    const Ticks* work(std::int32_t v) const { return &graph_.work[static_cast<std::size_t>(v) * graph_.devices]; }

    void arrive(std::int32_t v) {
        Ticks* const moment = ready(v);
        for (std::int64_t at = graph_.first[v]; at < graph_.first[v + 1]; ++at) {
            const std::int32_t u = graph_.source[at];
            const Ticks *start = ready(u), *own = work(u);
            for (int d = 0; d < graph_.devices; ++d) {
                Ticks soonest = later(start[d], own[d]);
                for (int s = 0; s < graph_.devices; ++s)
                    if (s != d && own[s] != never && start[s] != never && start[s] + own[s] < soonest)
                        soonest = std::min(soonest, later(start[s] + own[s], graph_.crossing(at, s, d)));
                moment[d] = std::max(moment[d], soonest);
            }
        }
    }

    /// With one node before v nothing is learnt that was not known about that node.
    bool joins(std::int32_t v) const {
        for (std::int64_t at = graph_.first[v] + 1; at < graph_.first[v + 1]; ++at)
            if (graph_.source[at] != graph_.source[graph_.first[v]]) return true;
        return false;
    }

    /// Collects nodes before v, the latest first, and keeps what every one of these sets proves.
    void look_back(std::int32_t v) {
        heap_.clear();
        std::fill(alone_.begin(), alone_.end(), 0);
        std::fill(stretched_.begin(), stretched_.end(), 0);
        Ticks torn = never, shared = 0;
        Wide priced = 0;
        follow(v, v, 0);
        for (int taken = 0; taken < reach_ && !heap_.empty(); ++taken) {
            std::pop_heap(heap_.begin(), heap_.end());
            const auto [from, u] = heap_.back();
            heap_.pop_back();
            if (from == never) return;  // cannot run at all: others say so
            torn = std::min(torn, leave_[u]);
            priced += price_[u];
            shared = std::max(shared, from + static_cast<Ticks>((priced + prices_.whole - 1) / prices_.whole));
            for (int d = 0; d < graph_.devices; ++d) {
                alone_[d] = later(alone_[d], work(u)[d]);
                stretched_[d] = std::max(stretched_[d], std::min(later(from, alone_[d]), torn));
            }
            follow(v, u, graph_.least_work[u] + chain_[u]);
        }
        pace_.count(64 * reach_);
        for (int d = 0; d < graph_.devices; ++d) {
            const Ticks proved = std::max(shared, stretched_[d]);
            if (proved != never) ready(v)[d] = std::max(ready(v)[d], proved);
        }
    }

    /// Notes the inputs of `w`, from whose start to that of v `rest` ticks pass at least.
    void follow(std::int32_t v, std::int32_t w, Ticks rest) {
        for (std::int64_t at = graph_.first[w]; at < graph_.first[w + 1]; ++at) {
            const std::int32_t u = graph_.source[at];
            const Ticks leaving = later(later(finish_[u], graph_.cheapest[graph_.tensor[at]]), rest);
            if (seen_[u] == v) {
                chain_[u] = std::max(chain_[u], rest);
                leave_[u] = std::max(leave_[u], leaving);  // any one edge of u keeps the set together
                continue;
            }
            seen_[u] = v, chain_[u] = rest, leave_[u] = leaving;
            heap_.emplace_back(begin_[u], u);
            std::push_heap(heap_.begin(), heap_.end());
        }
    }

    void settle(std::int32_t v) {
        begin_[v] = finish_[v] = never;
        Wide least = -1;
        for (int d = 0; d < graph_.devices; ++d) {
            if (work(v)[d] == never) continue;
            begin_[v] = std::min(begin_[v], ready(v)[d]);
            finish_[v] = std::min(finish_[v], later(ready(v)[d], work(v)[d]));
            const Wide price = static_cast<Wide>(prices_.time[d]) * work(v)[d];
            least = least < 0 ? price : std::min(least, price);
        }
        price_[v] = std::max<Wide>(least, 0);
    }

    Watch& watch_;
    Pace pace_;
    const Precedence& graph_;
    const Prices& prices_;
    const int reach_;
    std::vector<Ticks> ready_;
    std::vector<Ticks> begin_, finish_;  // [node]; on the best device
    std::vector<Wide> price_;        // [node]
    std::vector<std::int32_t> seen_;     // [node]; the node that last looked back at it
    std::vector<Ticks> chain_;           // [node]; from its finish to the start of that node
    std::vector<Ticks> leave_;           // [node]; start of that node if this one's output crosses
    std::vector<Ticks> alone_, stretched_;  // [device]
    std::vector<std::pair<Ticks, std::int32_t>> heap_;
};

}  // namespace

Precedence::Precedence(const Problem& problem, bool seen_backward)
    : nodes(problem.operators), devices(problem.devices), backward(seen_backward) {
    work.resize(static_cast<std::size_t>(nodes) * devices);
    least_work.assign(nodes, never);
    for (std::int32_t v = 0; v < nodes; ++v)
        for (int d = 0; d < devices; ++d) {
            const Ticks own = problem.duration[static_cast<std::size_t>(v) * devices + d];
            const std::int32_t i = node(v);
            work[static_cast<std::size_t>(i) * devices + d] = own == impossible ? never : own;
            if (own != impossible) least_work[i] = std::min(least_work[i], own);
        }
    take_inputs(problem);
    take_links(problem);
}

void Precedence::take_inputs(const Problem& problem) {
    const auto each_edge = [&](auto use) {
        for (std::int32_t t = 0; t < problem.tensors; ++t)
            for (std::int32_t at = problem.consumer_first[t]; at < problem.consumer_first[t + 1]; ++at) {
                const std::int32_t made = node(problem.producer[t]), read = node(problem.consumer[at]);
                backward ? use(read, made, t) : use(made, read, t);
            }
    };
    first.assign(nodes + 1, 0);
    each_edge([&](std::int32_t, std::int32_t to, std::int32_t) { ++first[to + 1]; });
    for (std::int32_t v = 0; v < nodes; ++v) first[v + 1] += first[v];
    source.resize(first[nodes]);
    tensor.resize(first[nodes]);
    std::vector<std::int64_t> next(first.begin(), first.end() - 1);
    each_edge([&](std::int32_t from, std::int32_t to, std::int32_t t) {
        source[next[to]] = from;
        tensor[next[to]++] = t;
    });
}

void Precedence::take_links(const Problem& problem) {
    std::vector<Link> distinct;
    link_kind.assign(static_cast<std::size_t>(devices) * devices, 0);
    for (int s = 0; s < devices; ++s)
        for (int d = 0; d < devices; ++d) {
            if (s == d) continue;
            const Link& way = problem.link(s, d);
            const auto same = [&](const Link& one) { return same_way(one, way); };
            const auto known = std::find_if(distinct.begin(), distinct.end(), same);
            link_kind[s * devices + d] = static_cast<std::uint16_t>(known - distinct.begin());
            if (known == distinct.end()) distinct.push_back(way);
        }
    kinds = distinct.size();
    crossings.resize(problem.tensors * kinds);
    cheapest.assign(problem.tensors, never);
    for (std::int32_t t = 0; t < problem.tensors; ++t)
        for (std::size_t kind = 0; kind < kinds; ++kind) {
            const Link& way = distinct[kind];
            const Ticks ticks = way.latency == impossible ? never : way.latency + problem.wire(t, way);
            crossings[t * kinds + kind] = ticks;
            cheapest[t] = std::min(cheapest[t], ticks);
        }
}

std::vector<Ticks> earliest_starts(const Precedence& graph, const Prices& prices, int reach, Watch& watch) {
    return Pass(graph, prices, reach, watch).run();
}

}  // namespace stead
