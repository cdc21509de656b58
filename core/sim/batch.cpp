#include "sim/batch.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include "sim/loads.h"
#include "sim/offload.h"

namespace stead {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t word) { return std::rotl((hash ^ word) * 0x9e3779b97f4a7c15u, 29); }

std::uint64_t hash_bytes(std::uint64_t hash, const std::byte* bytes, std::int64_t count) {
    std::uint64_t word, other = ~hash;  // two chains: in one, each multiplication waits for the one before it
    for (; count >= 16; bytes += 16, count -= 16) {
        std::memcpy(&word, bytes, 8);
        hash = mix(hash, word);
        std::memcpy(&word, bytes + 8, 8);
        other = mix(other, word);
    }
    hash = mix(hash, other);
    for (; count >= 8; bytes += 8, count -= 8) {
        std::memcpy(&word, bytes, 8);
        hash = mix(hash, word);
    }
    if (count == 0) return hash;
    word = 0;
    std::memcpy(&word, bytes, count);
    return mix(hash, word);
}

const std::byte* row_of(const RowBytes& column, std::int64_t b) {
    return static_cast<const std::byte*>(column.data) + b * column.bytes;
}

bool equal_rows(std::span<const RowBytes> columns, std::int64_t a, std::int64_t b) {
    return std::ranges::all_of(columns, [&](const RowBytes& column) {
        return column.bytes == 0 || std::memcmp(row_of(column, a), row_of(column, b), column.bytes) == 0;
    });
}

/// The rows of a batch without repetitions.
class DistinctRows {
public:
    DistinctRows(std::int64_t rows, std::span<const RowBytes> columns) : first_(first_equal_rows(rows, columns)) {
        for (std::int64_t b = 0; b < rows; ++b)
            if (first_[b] == b) distinct_.push_back(b);
    }
    std::span<const std::int64_t> rows() const { return distinct_; }

    /// Gives repeated rows the results of their first one.
    template <class T>
    void repeat(std::vector<T>& values) const {
        if (first_.empty()) return;
        const std::int64_t width = values.size() / first_.size();
        for (std::size_t b = 0; b < first_.size(); ++b)
            if (first_[b] != static_cast<std::int64_t>(b))
                std::copy_n(values.begin() + first_[b] * width, width, values.begin() + b * width);
    }
    void repeat(Scores& scores) const {
        repeat(scores.ticks);
        repeat(scores.status);
        repeat(scores.peak);
        repeat(scores.over);
    }

private:
    std::vector<std::int64_t> first_, distinct_;
};

RowBytes bytes_of(const Problem& problem, const Placements& placements) {
    if (placements.narrow != nullptr) return {placements.narrow, problem.operators};
    return {placements.data, problem.operators * std::int64_t{sizeof(DeviceIndex)}};
}

/// Reads rows one at a time, on one thread; narrow ones are widened while they are in the cache anyway.
class RowReader {
public:
    RowReader(const Problem& problem, const Placements& placements)
        : problem_(problem), placements_(placements), widened_(placements.narrow == nullptr ? 0 : problem.operators) {}

    /// Row b, until the next one is read.
    const DeviceIndex* operator()(std::int64_t b) {
        if (placements_.narrow == nullptr) return placements_.row(b, problem_);
        std::copy_n(placements_.narrow + b * problem_.operators, problem_.operators, widened_.begin());
        return widened_.data();
    }

private:
    const Problem& problem_;
    const Placements& placements_;
    std::vector<DeviceIndex> widened_;
};

RowBytes bytes_of(const RowOrders& orders) {
    return {orders.data, orders.per_row ? orders.length * std::int64_t{sizeof(std::int32_t)} : 0};
}

void set_status(Scores& scores, std::int64_t b, Status status) { scores.status[b] = static_cast<std::uint8_t>(status); }

void set_peaks(Scores& scores, std::int64_t b, const std::vector<Peak>& peaks) {
    const auto k = static_cast<std::int64_t>(peaks.size());
    for (std::int64_t d = 0; d < k; ++d) {
        scores.peak[b * k + d] = peaks[d].bytes;
        scores.over[b * k + d] = peaks[d].over;
        if (peaks[d].over > 0) set_status(scores, b, Status::memory);
    }
}

/// Scores rows by simulation, on one thread.
class SimulateTask {
public:
    SimulateTask(const Problem& problem, const Placements& placements, const SimulateOptions& options, Scores& scores)
        : problem_(problem), read_(problem, placements), options_(options), scores_(scores),
          engine_(make_engine(problem, options.policy, options.sends)), memory_(problem),
          run_(options.memory == MemoryMode::off ? Run() : Run(problem)) {}

    void operator()(std::int64_t b) {
        const DeviceIndex* const placement = read_(b);
        const Orders orders{options_.order.row(b), options_.transfer_order.row(b)};
        check_placement(problem_, placement);
        if (options_.order.per_row || options_.transfer_order.per_row) engine_->check(orders);
        engine_->check_with(placement, orders);
        const Status obstacle = find_obstacle(problem_, placement).status;
        if (obstacle != Status::ok) return set_status(scores_, b, obstacle);
        const bool needs_run = memory_.needs_run(placement, options_.memory);
        const Ticks ticks = engine_->simulate(placement, orders, options_.cutoff, needs_run ? &run_ : nullptr);
        if (ticks == never) return set_status(scores_, b, Status::cut);
        scores_.ticks[b] = ticks;
        set_peaks(scores_, b, memory_.judge(placement, run_, ticks));
    }

private:
    const Problem& problem_;
    RowReader read_;
    const SimulateOptions& options_;
    Scores& scores_;
    std::unique_ptr<Engine> engine_;
    Memory memory_;
    Run run_;
};

}  // namespace

Scores::Scores(std::int64_t rows, int devices)
    : devices(devices), ticks(rows, -1), status(rows, 0), peak(rows * devices, -1), over(rows * devices, 0) {}

LoadScores::LoadScores(std::int64_t rows, int devices)
    : Scores(rows, devices), compute(2 * rows * devices, -1), received(compute), sent(compute) {}

std::vector<std::int64_t> first_equal_rows(std::int64_t rows, std::span<const RowBytes> columns) {
    std::vector<std::pair<std::uint64_t, std::int64_t>> hashed(rows);
    for (std::int64_t b = 0; b < rows; ++b) {
        std::uint64_t hash = 0;
        for (const RowBytes& column : columns) hash = hash_bytes(hash, row_of(column, b), column.bytes);
        hashed[b] = {hash, b};
    }
    std::sort(hashed.begin(), hashed.end());
    std::vector<std::int64_t> first(rows);
    for (auto row = hashed.begin(); row != hashed.end(); ++row) {
        first[row->second] = row->second;
        for (auto earlier = row; earlier != hashed.begin() && (--earlier)->first == row->first;)
            if (equal_rows(columns, earlier->second, row->second)) {
                first[row->second] = first[earlier->second];
                break;
            }
    }
    return first;
}

Scores simulate_many(const Problem& problem, const Placements& placements, const SimulateOptions& options,
                     const Workers& workers) {
    Scores scores(placements.rows, problem.devices);
    if (!options.order.per_row && !options.transfer_order.per_row)
        make_engine(problem, options.policy, options.sends)
            ->check({options.order.row(0), options.transfer_order.row(0)});
    const RowBytes columns[] = {bytes_of(problem, placements), bytes_of(options.order),
                                bytes_of(options.transfer_order)};
    const DistinctRows distinct(placements.rows, columns);
    run_rows(distinct.rows(), workers, [&]() -> RowTask {
        const auto task = std::make_shared<SimulateTask>(problem, placements, options, scores);
        return [task](std::int64_t b) { (*task)(b); };
    });
    distinct.repeat(scores);
    return scores;
}

LoadScores loads_many(const Problem& problem, const Placements& placements, MemoryMode memory, const Workers& workers) {
    LoadScores scores(placements.rows, problem.devices);
    const RowBytes columns[] = {bytes_of(problem, placements)};
    const DistinctRows distinct(placements.rows, columns);
    const std::int64_t width = 2 * problem.devices;
    run_rows(distinct.rows(), workers, [&]() -> RowTask {
        const auto read = std::make_shared<RowReader>(problem, placements);
        const auto judge = std::make_shared<UntimedMemory>(problem);
        return [&, read, judge](std::int64_t b) {
            const DeviceIndex* const placement = (*read)(b);
            check_placement(problem, placement);
            const Loads loads{&scores.compute[b * width], &scores.received[b * width], &scores.sent[b * width]};
            const Status status = find_loads(problem, placement, loads);
            set_status(scores, b, status);
            if (status == Status::ok && memory != MemoryMode::off) set_peaks(scores, b, judge->judge(placement));
        };
    });
    distinct.repeat(scores);
    distinct.repeat(scores.compute);
    distinct.repeat(scores.received);
    distinct.repeat(scores.sent);
    return scores;
}

Scores offload_many(const Problem& problem, const Placements& placements, bool overlapping, MemoryMode memory,
                    const Workers& workers) {
    Scores scores(placements.rows, problem.devices);
    const RowBytes columns[] = {bytes_of(problem, placements)};
    const DistinctRows distinct(placements.rows, columns);
    run_rows(distinct.rows(), workers, [&]() -> RowTask {
        const auto offload = std::make_shared<Offload>(problem, overlapping);
        const auto read = std::make_shared<RowReader>(problem, placements);
        const auto judge = std::make_shared<UntimedMemory>(problem);
        return [&, offload, read, judge](std::int64_t b) {
            const DeviceIndex* const placement = (*read)(b);
            check_placement(problem, placement);
            const Offload::Outcome outcome = offload->evaluate(placement);
            scores.ticks[b] = outcome.latency;
            set_status(scores, b, outcome.status);
            if (outcome.status == Status::ok && memory != MemoryMode::off)
                set_peaks(scores, b, judge->judge(placement));
        };
    });
    distinct.repeat(scores);
    return scores;
}

}  // namespace stead
