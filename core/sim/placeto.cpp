#include "sim/placeto.h"

#include <limits>
#include <memory>
#include <numeric>
#include <tuple>

#include "base/fail.h"

namespace stead {
namespace {

constexpr double operator_gap_us = 5.7;
constexpr double transfer_gap_us = 25;
constexpr double bytes_per_us = 7600;
constexpr double limit = 9007199254740992;  // 2^53: below it every whole number is a double
constexpr std::size_t max_operators = std::size_t{1} << 24;
constexpr double not_pending = std::numeric_limits<double>::infinity();

void check_amounts(const char* name, std::span<const double> values) {
    double total = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (!(values[i] >= 0 && values[i] < limit))
            fail(name, " must be at least 0 and below 2^53, but entry ", i, " is ", values[i]);
        total += values[i];
    }
    if (total >= limit) fail(name, " must add up to less than 2^53, but the sum is ", total);
}

void check_arrays(const PlacetoArrays& given) {
    const std::size_t n = given.names.size();
    if (n > max_operators) fail("a graph may have at most ", max_operators, " operators, got ", n);
    if (given.cost_us.size() != n || given.pays_gap.size() != n || given.held_bytes.size() != n)
        fail("cost_us, pays_gap and held_bytes need ", n, " entries, one per name");
    if (given.child_first.size() != n + 1 || given.child_first[0] != 0 || !std::ranges::is_sorted(given.child_first) ||
        static_cast<std::size_t>(given.child_first[n]) != given.child.size())
        fail("child_first needs ", n + 1, " entries that rise from 0 to ", given.child.size());
    if (given.child_output.size() != given.child.size()) fail("child_output needs ", given.child.size(), " entries");
    const auto outputs = static_cast<std::int64_t>(given.output_bytes.size());
    for (std::size_t i = 0; i < given.child.size(); ++i) {
        if (given.child[i] < 0 || given.child[i] >= static_cast<std::int64_t>(n))
            fail("child: entry ", i, " is operator ", given.child[i], ", but there are ", n);
        if (given.child_output[i] < 0 || given.child_output[i] >= outputs)
            fail("child_output: entry ", i, " is output ", given.child_output[i], ", but there are ", outputs);
    }
    check_amounts("cost_us", given.cost_us);
    check_amounts("held_bytes", given.held_bytes);
    check_amounts("output_bytes", given.output_bytes);
}

/// The rank of each of 0 .. count - 1 in the order `less`.
template <class Less>
std::vector<std::int32_t> ranks(std::size_t count, Less less) {
    std::vector<std::int32_t> order(count), rank(count);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, less);
    for (std::size_t i = 0; i < count; ++i) rank[order[i]] = static_cast<std::int32_t>(i);
    return rank;
}

template <class T>
std::vector<T> copy(std::span<const T> from) {
    return {from.begin(), from.end()};
}

void check_devices(int devices) {
    if (devices < 1 || devices > mask_devices)
        fail("the number of devices must lie in 1..", mask_devices, ", got ", devices);
}

void check_placement(std::span<const std::uint8_t> placement, int devices) {
    for (std::size_t v = 0; v < placement.size(); ++v)
        if (placement[v] >= devices)
            fail("operator ", v, " is on device ", +placement[v], ", but devices are 0..", devices - 1);
}

double whole_part(double us) { return static_cast<double>(static_cast<std::int64_t>(us)); }

}  // namespace

PlacetoGraph::PlacetoGraph(const PlacetoArrays& given) {
    check_arrays(given);
    cost_us_ = copy(given.cost_us);
    held_bytes_ = copy(given.held_bytes);
    pays_gap_ = copy(given.pays_gap);
    // The bytes of UTF-8 sort like the code points of Python's strings.
    name_rank_ = ranks(given.names.size(), [&](int v, int w) { return given.names[v] < given.names[w]; });
    parents_.resize(given.names.size());
    for (std::int32_t c : given.child) ++parents_[c];
    check_acyclic(given);
    sort_children(given);
}

void PlacetoGraph::check_acyclic(const PlacetoArrays& given) const {
    std::vector<std::int32_t> need = parents_, ready;
    for (std::int32_t v = 0; v < operators(); ++v)
        if (need[v] == 0) ready.push_back(v);
    while (!ready.empty()) {
        const std::int32_t v = ready.back();
        ready.pop_back();
        for (std::int32_t i = given.child_first[v]; i < given.child_first[v + 1]; ++i)
            if (--need[given.child[i]] == 0) ready.push_back(given.child[i]);
    }
    for (std::int32_t v = 0; v < operators(); ++v)
        if (need[v] > 0)
            fail("a cycle: '", given.names[v], "' can never start, because it or what it waits for reads itself");
}

void PlacetoGraph::sort_children(const PlacetoArrays& given) {
    child_first_ = copy(given.child_first);
    group_first_.push_back(0);
    group_child_first_.push_back(0);
    std::vector<std::int32_t> edges;
    for (std::int32_t v = 0; v < operators(); ++v) {
        edges.resize(given.child_first[v + 1] - given.child_first[v]);
        std::iota(edges.begin(), edges.end(), given.child_first[v]);
        std::ranges::sort(edges, {}, [&](std::int32_t i) { return name_rank_[given.child[i]]; });
        for (std::int32_t i : edges) child_.push_back(given.child[i]);
        std::ranges::stable_sort(edges, {}, [&](std::int32_t i) { return given.child_output[i]; });
        add_groups(given, edges, v);
    }
}

void PlacetoGraph::add_groups(const PlacetoArrays& given, const std::vector<std::int32_t>& edges, std::int32_t v) {
    for (std::size_t k = 0; k < edges.size(); ++k) {
        const std::int32_t output = given.child_output[edges[k]];
        group_child_.push_back(given.child[edges[k]]);
        group_child_place_.push_back(edges[k]);
        if (k + 1 < edges.size() && given.child_output[edges[k + 1]] == output) continue;
        group_child_first_.push_back(static_cast<std::int32_t>(group_child_.size()));
        group_operator_.push_back(v);
        group_delay_us_.push_back(given.output_bytes[output] / bytes_per_us);
    }
    group_first_.push_back(static_cast<std::int32_t>(group_operator_.size()));
}

PlacetoEngine::PlacetoEngine(const PlacetoGraph& graph, int devices)
    : graph_(graph), devices_(devices), device_(graph.operators()), need_(graph.operators()),
      start_us_(graph.operators()), slot_us_(4 * devices), slot_item_(2 * devices), slot_rank_(2 * devices),
      run_queue_(graph.operators(), devices), bus_queue_(graph.group_operator_.size(), devices), changes_(devices) {
    // The published names are "/device:GPU:<d>": as texts, device 10 comes before device 2.
    for (std::int32_t rank : ranks(devices, [](int d, int e) { return std::to_string(d) < std::to_string(e); }))
        text_rank_.push_back(static_cast<std::uint8_t>(rank));
}

double PlacetoEngine::simulate(const std::uint8_t* placement) {
    for (std::int32_t v = 0; v < graph_.operators(); ++v) device_[v] = text_rank_[placement[v]];
    need_ = graph_.parents_;
    std::ranges::fill(slot_us_, not_pending);
    run_queue_.clear();
    bus_queue_.clear();
    for (std::int32_t v = 0; v < graph_.operators(); ++v)
        if (graph_.parents_[v] == 0) enqueue(0, v);
    double now = 0;
    for (int s = next_slot(); slot_us_[s] != not_pending; s = next_slot()) {
        now = slot_us_[s];
        slot_us_[s] = not_pending;
        const int device = s % devices_;
        switch (static_cast<Event>(s / devices_)) {
            case local_arrival: arrive_locally(now, device); break;
            case remote_arrival: arrive_remotely(now, device); break;
            case bus: send_next(now, device); break;
            case run: run_next(now, device); break;
        }
    }
    return now;
}

int PlacetoEngine::next_slot() const {
    // Slots are ordered by kind and device, so the first minimum is the next event. Only arrivals, whose ties go by the
    // names of their operators, need a second look.
    const auto first = std::ranges::min_element(slot_us_);
    int best = static_cast<int>(first - slot_us_.begin());
    for (int s = best + 1; s < 2 * devices_; ++s)
        if (slot_us_[s] == *first && slot_rank_[s] < slot_rank_[best]) best = s;
    return best;
}

void PlacetoEngine::await_arrival(Event event, int device, double at, std::int32_t item, std::int32_t parent) {
    const int s = slot(event, device);
    slot_us_[s] = at;
    slot_item_[s] = item;
    slot_rank_[s] = graph_.name_rank_[parent];
}

void PlacetoEngine::arrive_locally(double now, int device) {
    const int v = slot_item_[slot(local_arrival, device)];
    for (int i = graph_.child_first_[v]; i < graph_.child_first_[v + 1]; ++i) {
        const int c = graph_.child_[i];
        if (device_[c] == device && --need_[c] == 0) enqueue(now, c);
    }
}

void PlacetoEngine::arrive_remotely(double now, int device) {
    const int group = slot_item_[slot(remote_arrival, device)];
    for (int i = graph_.group_child_first_[group]; i < graph_.group_child_first_[group + 1]; ++i) {
        const int c = graph_.group_child_[i];
        if (device_[c] != device && --need_[c] == 0) enqueue(now, c);
    }
}

void PlacetoEngine::enqueue(double now, std::int32_t v) {
    const int device = device_[v];
    run_queue_.push(device, v);
    double& pending = slot_us_[slot(run, device)];
    if (pending == not_pending) pending = now;
}

void PlacetoEngine::run_next(double now, int device) {
    if (run_queue_.empty(device)) return;
    const int v = run_queue_.pop(device);
    start_us_[v] = now;
    const double end = now + graph_.cost_us_[v];
    slot_us_[slot(run, device)] = graph_.pays_gap_[v] ? end + operator_gap_us : end;
    queue_transfers(end, v, device);
}

void PlacetoEngine::queue_transfers(double end, std::int32_t v, int device) {
    bool local = false;
    transfers_.clear();
    for (int group = graph_.group_first_[v]; group < graph_.group_first_[v + 1]; ++group) {
        int first_remote = std::numeric_limits<int>::max();
        for (int i = graph_.group_child_first_[group]; i < graph_.group_child_first_[group + 1]; ++i) {
            if (device_[graph_.group_child_[i]] == device)
                local = true;
            else
                first_remote = std::min(first_remote, graph_.group_child_place_[i]);
        }
        if (first_remote != std::numeric_limits<int>::max()) transfers_.emplace_back(first_remote, group);
    }
    if (local) await_arrival(local_arrival, device, end, v, v);
    if (transfers_.empty()) return;
    std::ranges::sort(transfers_);
    for (const auto& [place, group] : transfers_) bus_queue_.push(device, group);
    double& pending = slot_us_[slot(bus, device)];
    if (pending == not_pending) pending = end;
}

void PlacetoEngine::send_next(double now, int device) {
    if (bus_queue_.empty(device)) return;
    const int group = bus_queue_.front(device);
    const int v = graph_.group_operator_[group];
    const double ready = start_us_[v] + graph_.cost_us_[v];
    if (ready > now) {
        slot_us_[slot(bus, device)] = ready;
        return;
    }
    bus_queue_.pop(device);
    const double arrival = now + graph_.group_delay_us_[group];
    await_arrival(remote_arrival, device, arrival, group, v);
    slot_us_[slot(bus, device)] = arrival + transfer_gap_us;
}

void PlacetoEngine::find_peaks(double* peak_bytes) {
    for (auto& changes : changes_) changes.clear();
    for (int v = 0; v < graph_.operators(); ++v) {
        const double held = graph_.held_bytes_[v];
        if (held == 0) continue;
        double release = start_us_[v];
        for (int i = graph_.child_first_[v]; i < graph_.child_first_[v + 1]; ++i) {
            const int c = graph_.child_[i];
            release = std::max(release, whole_part(start_us_[c]) + whole_part(graph_.cost_us_[c]) - 1);
        }
        changes_[device_[v]].push_back({start_us_[v], held});
        changes_[device_[v]].push_back({release, -held});
    }
    for (int d = 0; d < devices_; ++d) peak_bytes[d] = highest(changes_[text_rank_[d]]);
}

double PlacetoEngine::highest(std::vector<Change>& changes) {
    // Sizes need not be whole numbers, so the order of additions at one time is part of the result.
    const auto key = [](const Change& c) { return std::tuple(c.at_us, c.signed_bytes < 0, c.signed_bytes); };
    std::ranges::sort(changes, {}, key);
    double held = 0, peak = 0;
    for (const Change& change : changes) {
        held += change.signed_bytes;
        peak = std::max(peak, held);
    }
    return peak;
}

PlacetoRun simulate_placeto(const PlacetoGraph& graph, std::span<const std::uint8_t> placement, int devices) {
    check_devices(devices);
    if (placement.size() != static_cast<std::size_t>(graph.operators()))
        fail("placement needs ", graph.operators(), " entries, got ", placement.size());
    check_placement(placement, devices);
    PlacetoEngine engine(graph, devices);
    PlacetoRun run{.makespan_us = engine.simulate(placement.data()), .start_us = engine.start_us(), .peak_bytes = {}};
    run.peak_bytes.resize(devices);
    engine.find_peaks(run.peak_bytes.data());
    return run;
}

PlacetoScores simulate_placeto_many(const PlacetoGraph& graph, std::span<const std::uint8_t> placements,
                                    std::int64_t rows, int devices, bool peaks, const Workers& workers) {
    check_devices(devices);
    PlacetoScores scores{devices, std::vector<double>(rows), std::vector<double>(rows * devices, -1)};
    std::vector<std::int64_t> indices(rows);
    std::iota(indices.begin(), indices.end(), 0);
    run_rows(indices, workers, [&]() -> RowTask {
        const auto engine = std::make_shared<PlacetoEngine>(graph, devices);
        return [&, engine](std::int64_t b) {
            const auto placement = placements.subspan(b * graph.operators(), graph.operators());
            check_placement(placement, devices);
            scores.makespan_us[b] = engine->simulate(placement.data());
            if (peaks) engine->find_peaks(&scores.peak_bytes[b * devices]);
        };
    });
    return scores;
}

}  // namespace stead
