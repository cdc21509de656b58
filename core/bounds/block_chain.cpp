#include "bounds/block_chain.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "bounds/block_search.h"

namespace stead {

namespace {

constexpr std::int64_t first_steps = 2048;  // of a search, in operators looked at
constexpr std::int64_t more_steps = 4;      // times as many in each further round
constexpr std::int64_t cutting_work = 64;   // operators looked at to find cuts, by all there are

/// Where operators stand between those of a path.
struct Places {
    Places(const Problem& problem, std::span<const std::int32_t> path)
        : after(problem.operators, -1), before(problem.operators, static_cast<std::int32_t>(path.size())),
          place(problem.operators, -1) {
        for (std::size_t i = 0; i < path.size(); ++i) place[path[i]] = static_cast<std::int32_t>(i);
        const auto each_reader = [&](std::int32_t t, auto use) {
            for (std::int32_t at = problem.consumer_first[t]; at < problem.consumer_first[t + 1]; ++at)
                use(problem.producer[t], problem.consumer[at]);
        };
        for (std::int32_t t = 0; t < problem.tensors; ++t)
            each_reader(t, [&](std::int32_t u, std::int32_t v) {
                after[v] = std::max(after[v], place[u] >= 0 ? place[u] : after[u]);
            });
        for (std::int32_t t = problem.tensors - 1; t >= 0; --t)
            each_reader(t, [&](std::int32_t u, std::int32_t v) {
                before[u] = std::min(before[u], place[v] >= 0 ? place[v] : before[v]);
            });
    }

    std::vector<std::int32_t> after;   // [operator]; the last place of the path that it waits for, -1: none
    std::vector<std::int32_t> before;  // [operator]; the first place that waits for it, as many as there are: none
    std::vector<std::int32_t> place;   // [operator]; its own, -1: it is not on the path
};

/// A stretch of a path with all that lies in it, the operator at its end included.
struct Stretch {
    std::int32_t head, end;  // places
    std::vector<std::int32_t> operators;
};

class Cutting {
public:
    Cutting(const Problem& problem, const ChainOptions& options)
        : problem_(problem), options_(options), last_(static_cast<std::int32_t>(options.path.size())),
          places_(problem, options.path), least_(problem.operators, 0) {
        for (std::int32_t v = 0; v < problem.operators; ++v) {
            Ticks least = never;
            for (int d = 0; d < problem.devices; ++d)
                if (const Ticks own = problem.duration[problem.cell(v, d)]; own != impossible)
                    least = std::min(least, own);
            least_[v] = least == never ? 0 : least;
        }
    }

    /// Stretches in order; none of them has more operators than it may, if need be without those that do least.
    std::vector<Stretch> run(Watch& watch) {
        std::vector<std::int32_t> all(problem_.operators);
        std::iota(all.begin(), all.end(), 0);
        std::vector<Stretch> waiting, made;
        waiting.push_back({-1, last_, std::move(all)});
        std::int64_t looked_at = 0;
        while (!waiting.empty()) {
            Stretch one = std::move(waiting.back());
            waiting.pop_back();
            watch.poll();
            if (watch.stopped()) return {};
            looked_at += static_cast<std::int64_t>(one.operators.size());
            const bool enough = looked_at > cutting_work * problem_.operators;
            const std::vector<std::int32_t> places = enough ? std::vector<std::int32_t>() : cuts(one);
            if (places.empty()) {
                thin(one);
                if (!one.operators.empty()) made.push_back(std::move(one));
                continue;
            }
            split(one, places, waiting);
        }
        std::sort(made.begin(), made.end(), [](const Stretch& a, const Stretch& b) { return a.head < b.head; });
        return made;
    }

private:
    /// What nothing of the path waits for, or what waits for nothing of it: every cut on a long way loses it.
    bool hangs(std::int32_t v) const { return places_.after[v] < 0 || places_.before[v] >= last_; }

    /// Places at which nothing is lost; where there is none and a stretch is too long, the one at which least is.
    /// Of a stretch that is too long, what hangs is lost anyway.
    std::vector<std::int32_t> cuts(const Stretch& one) const {
        const std::int32_t inner = one.end - one.head - 1;
        if (inner < 1) return {};
        const bool fits = static_cast<int>(one.operators.size()) <= options_.most_operators;
        std::vector<Ticks> lost(inner + 2, 0);
        for (const std::int32_t v : one.operators) {
            if (places_.place[v] >= 0 || (!fits && hangs(v))) continue;
            const std::int32_t from = places_.after[v] + 1 - one.head, to = places_.before[v] - one.head;
            lost[from] += least_[v] + 1;
            lost[to] -= least_[v] + 1;
        }
        std::vector<std::int32_t> found;
        Ticks here = lost[0], least = never;
        for (std::int32_t i = 1; i <= inner; ++i) {
            here += lost[i];
            if (here > least) continue;
            if (here < least) found.clear();
            least = here;
            found.push_back(one.head + i);
        }
        if (least == 0) return found;
        if (fits) return {};
        return {found[found.size() / 2]};
    }

    void split(const Stretch& one, const std::vector<std::int32_t>& places, std::vector<Stretch>& waiting) const {
        std::vector<Stretch> parts;
        std::int32_t head = one.head;
        for (const std::int32_t place : places) parts.push_back({std::exchange(head, place), place, {}});
        parts.push_back({head, one.end, {}});
        for (const std::int32_t v : one.operators) {
            const std::int32_t own = places_.place[v];
            const std::int32_t from = own >= 0 ? own - 1 : places_.after[v], to = own >= 0 ? own : places_.before[v];
            const auto part = std::upper_bound(parts.begin(), parts.end(), from,
                                               [](std::int32_t place, const Stretch& p) { return place < p.end; });
            if (part != parts.end() && to <= part->end) part->operators.push_back(v);
        }
        std::move(parts.begin(), parts.end(), std::back_inserter(waiting));
    }

    void thin(Stretch& one) const {
        if (static_cast<int>(one.operators.size()) <= options_.most_operators) return;
        const auto rank = [&](std::int32_t v) {
            const std::int32_t place = places_.place[v];
            return std::tuple(place != one.end || place < 0, place < 0, -least_[v], v);  // the end stays in any case
        };
        std::sort(one.operators.begin(), one.operators.end(),
                  [&](std::int32_t a, std::int32_t b) { return rank(a) < rank(b); });
        one.operators.resize(options_.most_operators);
        std::sort(one.operators.begin(), one.operators.end());
    }

    const Problem& problem_;
    const ChainOptions& options_;
    const std::int32_t last_;
    const Places places_;
    std::vector<Ticks> least_;  // [operator]
};

/// Makes blocks of stretches.
class Blocks {
public:
    Blocks(const Problem& problem, const ChainOptions& options)
        : problem_(problem), options_(options), place_(problem.operators, nowhere) {
        first_read_.assign(problem.operators + 1, 0);
        for (const std::int32_t v : problem.consumer) ++first_read_[v + 1];
        std::partial_sum(first_read_.begin(), first_read_.end(), first_read_.begin());
        read_.resize(first_read_.back());
        std::vector<std::int64_t> next(first_read_.begin(), first_read_.end() - 1);
        for (std::int32_t t = 0; t < problem.tensors; ++t)
            for (std::int32_t at = problem.consumer_first[t]; at < problem.consumer_first[t + 1]; ++at)
                read_[next[problem.consumer[at]]++] = t;
    }

    Block made(const Stretch& stretch) {
        Block block;
        block.devices = problem_.devices;
        block.has_head = stretch.head >= 0;
        block.has_end = stretch.end < static_cast<std::int32_t>(options_.path.size());
        const std::int32_t head = block.has_head ? options_.path[stretch.head] : -1;
        std::map<std::int32_t, std::int32_t> unit, tensor;
        std::int32_t count = 0;
        for (const std::int32_t v : stretch.operators) place_[v] = count++;
        if (head >= 0) place_[head] = -1;
        block.read_first.push_back(0);
        for (const std::int32_t v : stretch.operators) {
            for (int d = 0; d < problem_.devices; ++d) {
                const Ticks own = problem_.duration[problem_.cell(v, d)];
                block.work.push_back(own == impossible ? never : own);
            }
            const auto place = static_cast<std::int32_t>(block.unit.size());
            block.unit.push_back(unit.try_emplace(options_.units[v], place).first->second);
            for (std::int64_t at = first_read_[v]; at < first_read_[v + 1]; ++at) {
                const std::int32_t from = place_[problem_.producer[read_[at]]];
                if (from == nowhere) continue;
                const auto [known, is_new] = tensor.try_emplace(read_[at], static_cast<std::int32_t>(tensor.size()));
                if (is_new) add_ways(block, read_[at]);
                block.reads.push_back({from, known->second});
            }
            block.read_first.push_back(static_cast<std::int32_t>(block.reads.size()));
        }
        if (const auto known = head < 0 ? unit.end() : unit.find(options_.units[head]); known != unit.end())
            block.head_unit = known->second;
        for (const std::int32_t v : stretch.operators) place_[v] = nowhere;
        if (head >= 0) place_[head] = nowhere;
        block.like = like(block);
        return block;
    }

private:
    static constexpr std::int32_t nowhere = -2;

    void add_ways(Block& block, std::int32_t t) const {
        for (int s = 0; s < problem_.devices; ++s)
            for (int d = 0; d < problem_.devices; ++d) {
                const Link& way = problem_.link(s, d);
                const bool none = s != d && way.latency == impossible;
                const Ticks wire = s == d || none ? 0 : problem_.wire(t, way);
                block.crossing.push_back(none ? never : s == d ? 0 : way.latency + wire);
                block.wire.push_back(way.channel < 0 ? 0 : wire);
            }
    }

    /// [device]; the first device that it could change places with, as far as a block can tell.
    std::vector<int> like(const Block& block) const {
        std::vector<int> found(problem_.devices);
        for (int d = 0; d < problem_.devices; ++d) {
            found[d] = d;
            for (int k = 0; k < d; ++k)
                if (found[k] == k && alike(block, k, d)) {
                    found[d] = k;
                    break;
                }
        }
        return found;
    }

    bool alike(const Block& block, int a, int b) const {
        for (int v = 0; v < block.size(); ++v)
            if (block.work_of(v, a) != block.work_of(v, b)) return false;
        const auto same = [&](int s, int d, int k, int e) {
            const Link &one = problem_.link(s, d), &other = problem_.link(k, e);
            return one.latency == other.latency && one.ps_per_byte == other.ps_per_byte && one.hops == other.hops &&
                   (one.channel < 0) == (other.channel < 0);
        };
        if (!same(a, b, b, a)) return false;
        for (int k = 0; k < problem_.devices; ++k)
            if (k != a && k != b && !(same(a, k, b, k) && same(k, a, k, b))) return false;
        return true;
    }

    const Problem& problem_;
    const ChainOptions& options_;
    std::vector<std::int32_t> place_;  // [operator]; in the block that is being made, -1 its head
    std::vector<std::int64_t> first_read_;
    std::vector<std::int32_t> read_;
};

/// A block with what is known of it for every pair of devices; blocks that are equal share one.
class KnownBlock {
public:
    explicit KnownBlock(Block given)
        : block(std::move(given)), search_(block), spans_(static_cast<std::size_t>(block.devices) * block.devices) {
        for (int s = 0; s < heads(); ++s)
            for (int d = 0; d < ends(); ++d)
                if (first_of(s, d) == pair(s, d)) spans_[pair(s, d)].lower = search_.longest_path(head(s), end(d));
    }
    KnownBlock(const KnownBlock&) = delete;
    KnownBlock& operator=(const KnownBlock&) = delete;

    int heads() const { return block.has_head ? block.devices : 1; }
    int ends() const { return block.has_end ? block.devices : 1; }
    Ticks lower(int s, int d) const { return spans_[first_of(s, d)].lower; }
    Ticks upper(int s, int d) const { return spans_[first_of(s, d)].upper; }

    /// Searches with so many steps, once per round; returns how many it took.
    std::int64_t search(int s, int d, int round, std::int64_t steps, Pace& pace) {
        Known& known = spans_[first_of(s, d)];
        if (known.round >= round || known.settled() || known.lower == never) return 0;
        known.round = round;
        const int first = static_cast<int>(first_of(s, d));
        return search_.narrow(head(first / block.devices), end(first % block.devices), known, steps, pace);
    }

    const Block block;

private:
    struct Known : Span {
        int round = 0;
    };

    std::size_t pair(int s, int d) const { return static_cast<std::size_t>(s) * block.devices + d; }
    int head(int s) const { return block.has_head ? s : -1; }
    int end(int d) const { return block.has_end ? d : -1; }

    /// The pair that stands for all that differ by exchanging devices alone.
    std::size_t first_of(int s, int d) const {
        const int a = block.has_head ? block.like[s] : 0;
        if (!block.has_end) return pair(a, 0);
        if (!block.has_head) return pair(0, block.like[d]);
        if (s == d) return pair(a, a);
        int b = block.like[d];
        if (b == a)  // the first of its kind but for the head's
            for (b = a + 1; block.like[b] != a; ++b) {
            }
        return pair(a, b);
    }

    BlockSearch search_;
    std::vector<Known> spans_;  // [head, end]
};

class Chain {
public:
    Chain(const Problem& problem, const ChainOptions& options, Watch& watch)
        : devices_(problem.devices), bound_(options.known), steps_(options.steps), watch_(watch), pace_(watch) {
        Blocks blocks(problem, options);
        std::map<std::vector<Ticks>, std::vector<KnownBlock*>> by_work;
        for (const Stretch& stretch : Cutting(problem, options).run(watch)) {
            Block block = blocks.made(stretch);
            auto& alike = by_work[block.work];
            const auto known =
                std::find_if(alike.begin(), alike.end(), [&](const KnownBlock* one) { return one->block == block; });
            if (known == alike.end()) {
                known_.push_back(std::make_unique<KnownBlock>(std::move(block)));
                alike.push_back(known_.back().get());
                chain_.push_back(known_.back().get());
            } else {
                chain_.push_back(*known);
            }
            watch.poll();
            if (watch.stopped()) break;  // the blocks of a path that ends here
        }
    }

    Ticks run() {
        Ticks best = add_up(&KnownBlock::lower);
        std::int64_t each = first_steps;
        for (int round = 1; best != never; ++round, each = std::min(steps_, each * more_steps)) {
            bool open = false;
            while (search_least(round, each)) {
                open = true;
                best = add_up(&KnownBlock::lower);
            }
            if (!open || is_over()) break;  // all on the way is settled, or there is no time
            if (add_up(&KnownBlock::upper) <= bound_) break;
            add_up(&KnownBlock::lower);  // whose way is the next to be searched
        }
        return best;
    }

private:
    bool is_over() const { return steps_ <= 0 || watch_.stopped(); }

    /// Searches the blocks of the least sum; whether there was one that had not been searched in this round.
    bool search_least(int round, std::int64_t each) {
        bool searched = false;
        int s = 0;
        for (std::size_t i = 0; i < chain_.size() && !is_over(); ++i) {
            const int d = next_[i * devices_ + s];
            const std::int64_t took = chain_[i]->search(s, d, round, std::min(each, steps_), pace_);
            steps_ -= took;
            searched = searched || took > 0;
            s = d;
        }
        return searched;
    }

    /// The least sum over all devices between blocks; `next_` says which they are.
    Ticks add_up(Ticks (KnownBlock::*ticks)(int, int) const) {
        next_.assign(chain_.size() * devices_, 0);
        std::vector<Ticks> behind(devices_, 0), here(devices_);
        for (std::size_t i = chain_.size(); i-- > 0;) {
            for (int s = 0; s < chain_[i]->heads(); ++s) {
                here[s] = never;
                for (int d = 0; d < chain_[i]->ends(); ++d) {
                    const Ticks own = (chain_[i]->*ticks)(s, d);
                    if (own == never || behind[d] == never || own + behind[d] >= here[s]) continue;
                    here[s] = own + behind[d];
                    next_[i * devices_ + s] = d;
                }
            }
            behind = here;
        }
        return behind[0];
    }

    const int devices_;
    const Ticks bound_;
    std::int64_t steps_;  // that are left
    Watch& watch_;
    Pace pace_;
    std::vector<std::unique_ptr<KnownBlock>> known_;
    std::vector<KnownBlock*> chain_;
    std::vector<int> next_;  // [block, device of its head]; the device of its end
};

}  // namespace

Ticks block_chain_bound(const Problem& problem, const ChainOptions& options, Watch& watch) {
    if (options.path.empty() || problem.horizon > never / 8) return 0;  // sums of a few such times must be exact
    return Chain(problem, options, watch).run();
}

}  // namespace stead
