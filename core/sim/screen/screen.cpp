#include "sim/screen/screen.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>

#include "base/placement.h"
#include "sim/order_checks.h"
#include "sim/policies/program_order.h"

namespace stead {
namespace {

constexpr double most_ticks = 1 << 30;
constexpr std::int32_t few_ticks = 1 << 22;
constexpr float hopeless = -0x1p31f;  // as a latency or gap; nothing that is added to it becomes positive

template <class Visit>
void for_each_link(const Problem& problem, Visit visit) {
    for (int s = 0; s < problem.devices; ++s)
        for (int k = 0; k < problem.devices; ++k)
            if (s != k) visit(s, k, problem.link(s, k));
}

const Link& first_link(const Problem& problem, int source) { return problem.link(source, source == 0 ? 1 : 0); }

Channels classify_channels(const Problem& problem) {
    if (problem.carries) return Channels::mixed;  // kernels know no devices that are busy with transfers
    std::vector<int> users(problem.channels), last_source(problem.channels, -1);
    bool own = true, crossed = true, shared = true;
    for_each_link(problem, [&](int s, int, const Link& link) {
        shared = shared && link.channel >= 0 && link.channel == first_link(problem, s).channel;
        if (link.channel < 0) return;
        own = own && ++users[link.channel] == 1;
        crossed = crossed && last_source[link.channel] != s;
        last_source[link.channel] = s;
    });
    return own ? Channels::own : crossed ? Channels::crossed : shared ? Channels::shared : Channels::mixed;
}

/// Whether devices and links are all alike and usable.
bool is_uniform(const Problem& problem) {
    if (problem.devices < 2 || !problem.runs_everywhere || !problem.all_reachable) return false;
    const Link& any = first_link(problem, 0);
    bool uniform = true;
    for_each_link(problem, [&](int, int, const Link& link) {
        uniform = uniform && link.latency == any.latency && link.gap == any.gap && link.hops == any.hops &&
                  link.ps_per_byte == any.ps_per_byte && (link.channel < 0) == (any.channel < 0);
    });
    const std::int64_t k = problem.devices;
    for (auto row = problem.duration.begin(); row != problem.duration.end() && uniform; row += k)
        uniform = std::all_of(row, row + k, [&](Ticks duration) { return duration == *row; });
    return uniform;
}

/// A number in 0..1 for tensor `t` that makes sums of truncated values unbiased: multiples of the golden ratio, taken
/// modulo 1, fill that range evenly. Whole multiples of 2^-24, so exact.
float dither(std::int32_t t) {
    constexpr std::uint32_t golden_ratio = 2654435769u;  // times 2^32
    return static_cast<float>(static_cast<std::uint32_t>(t) * golden_ratio >> 8) * 0x1p-24f;
}

/// The program that all placements of a batch are run through.
class ScreenProgram {
public:
    ScreenProgram(const Problem& problem, std::span<const std::int32_t> order, Channels channels);

    ScreenPlan plan() const;
    Orders orders() const { return {.order = order_, .transfer_order = {}}; }
    ScreenKernel kernel(Instructions instructions) const {
        return find_kernel(devices_, channels_, uniform_, instructions);
    }
    std::int64_t rows() const { return devices_ * (devices_ + 1) + std::int64_t{slots_}; }  // of memory for the kernel
    float seconds(std::int32_t ticks) const {
        return ticks < 0 ? std::numeric_limits<float>::infinity() : static_cast<float>(ticks * ps_per_tick_ * seconds_per_tick);
    }
    /// Whether a schedule is so much shorter than the longest conceivable one that rounding to ticks could show.
    bool is_coarse(std::int32_t ticks) const { return ps_per_tick_ > 1 && 0 <= ticks && ticks < few_ticks; }

private:
    double longest_ps() const;
    void scale_durations();
    void scale_links();
    void assign_slots();
    float ticks(double ps) const { return static_cast<float>(ps / ps_per_tick_); }
    double rate(const Link& link) const { return problem_.timed_by_tensor() ? link.hops : link.ps_per_byte; }
    double amount(std::int32_t t) const {
        return static_cast<double>(problem_.timed_by_tensor() ? problem_.tensor_ticks[t] : problem_.tensor_bytes[t]);
    }

    const Problem& problem_;
    const Channels channels_;
    const bool uniform_;
    const int devices_;  // as kernels count them: 2, 4 or 8
    std::vector<std::int32_t> order_, duration_, slot_;
    std::int32_t slots_ = 0;
    std::vector<ScreenPlan::Tensor> tensor_;
    double ps_per_tick_ = 1;
    using LinkTable = std::array<float, most_kernel_devices * most_kernel_devices>;
    LinkTable rate_{}, latency_{}, gap_{};
    std::array<std::int32_t, most_kernel_devices * most_kernel_devices> channel_{};
};

ScreenProgram::ScreenProgram(const Problem& problem, std::span<const std::int32_t> order, Channels channels)
    : problem_(problem), channels_(channels), uniform_(channels != Channels::crossed && is_uniform(problem)),
      devices_(static_cast<int>(std::bit_ceil(std::max(2u, static_cast<unsigned>(problem.devices))))),
      order_(order.begin(), order.end()), tensor_(problem.tensors) {
    if (order_.empty()) {
        order_.resize(problem.operators);
        std::iota(order_.begin(), order_.end(), 0);
    }
    OrderCheck(problem).topological(order_);
    ps_per_tick_ = std::max(1.0, longest_ps() / most_ticks);
    const bool exact = ps_per_tick_ == 1;  // then round like the exact simulation
    for (std::int32_t t = 0; t < problem.tensors; ++t)
        tensor_[t] = {static_cast<float>(amount(t)), exact ? 0.5f : dither(t)};
    scale_durations();
    scale_links();
    assign_slots();
}

/// No schedule lasts longer. Follow the causes of the last finish back in time: every operator occurs at most once. So
/// does every transfer, and only one per tensor if the transfers of a tensor do not wait for each other.
double ScreenProgram::longest_ps() const {
    double total = 0, slowest = 0, wait = 0;
    for_each_link(problem_, [&](int, int, const Link& link) {
        if (link.latency == impossible) return;
        slowest = std::max(slowest, rate(link));
        wait = std::max({wait, static_cast<double>(link.latency), static_cast<double>(link.gap)});
    });
    const std::int64_t k = problem_.devices;
    for (std::int32_t v = 0; v < problem_.operators; ++v) {
        const Ticks* const row = &problem_.duration[v * k];
        total += static_cast<double>(std::max<Ticks>(0, *std::max_element(row, row + k)));
    }
    const std::int64_t most_transfers = channels_ == Channels::shared ? k - 1 : 1;
    for (std::int32_t t = 0; t < problem_.tensors; ++t) {
        const std::int64_t readers = problem_.consumer_first[t + 1] - problem_.consumer_first[t];
        total += static_cast<double>(std::min(readers, most_transfers)) * (amount(t) * slowest + wait);
    }
    return total;
}

/// Rounds durations to ticks and carries what is cut off over to the next operator, so that the errors of a device do
/// not add up.
void ScreenProgram::scale_durations() {
    const int columns = uniform_ ? 1 : devices_;
    std::array<double, most_kernel_devices> carried;
    carried.fill(0.5);
    const double ticks_per_ps = 1 / ps_per_tick_;
    duration_.resize(order_.size() * columns);
    auto out = duration_.begin();
    for (std::int32_t v : order_)
        for (int d = 0; d < columns; ++d, ++out) {
            const Ticks duration = d < problem_.devices ? problem_.duration[std::int64_t{v} * problem_.devices + d] : 0;
            *out = -1;
            if (duration == impossible) continue;
            const double exact = static_cast<double>(duration) * ticks_per_ps + carried[d];
            *out = static_cast<std::int32_t>(exact);
            carried[d] = exact - *out;
        }
}

void ScreenProgram::scale_links() {
    for_each_link(problem_, [&](int s, int k, const Link& link) {
        const int pair = uniform_ ? 0 : k * devices_ + s;
        const bool usable = link.latency != impossible;
        rate_[pair] = usable ? ticks(rate(link)) : 0;
        latency_[pair] = usable ? ticks(static_cast<double>(link.latency)) : hopeless;
        gap_[pair] = usable && link.channel >= 0 ? ticks(static_cast<double>(link.gap)) : hopeless;
        if (channels_ == Channels::crossed) channel_[pair] = link.channel >= 0 ? link.channel : problem_.channels;
        if (channels_ == Channels::shared) channel_[s] = link.channel;
    });
}

/// Ready times are kept from the first producer of an operator until the operator runs. Reusing their memory keeps it
/// in the cache: few operators are between the two at a time.
void ScreenProgram::assign_slots() {
    const auto count = static_cast<std::int32_t>(order_.size());
    slot_.assign(count, -1);
    std::vector<std::int32_t> stack(count);  // of free slots; 0 is on top
    std::iota(stack.rbegin(), stack.rend(), 0);
    std::int32_t height = count;
    const auto take = [&](std::int32_t v) {
        if (slot_[v] < 0) slot_[v] = stack[--height];
        slots_ = std::max(slots_, count - height);
    };
    for (std::int32_t v : order_) {
        take(v);
        stack[height++] = slot_[v];
        const std::int32_t begin = problem_.consumer_first[problem_.tensor_first[v]];
        const std::int32_t end = problem_.consumer_first[problem_.tensor_first[v + 1]];
        for (std::int32_t e = begin; e < end; ++e) take(problem_.consumer[e]);
    }
}

ScreenPlan ScreenProgram::plan() const {
    return {.operators = problem_.operators,
            .order = order_.data(),
            .duration = duration_.data(),
            .slot = slot_.data(),
            .tensor_first = problem_.tensor_first.data(),
            .consumer_first = problem_.consumer_first.data(),
            .consumer = problem_.consumer.data(),
            .tensor = tensor_.data(),
            .rate = rate_.data(),
            .latency = latency_.data(),
            .gap = gap_.data(),
            .channel = channel_.data()};
}

constexpr int tile = 16;
typedef std::uint8_t TileRow __attribute__((vector_size(tile)));

#if defined(__clang__)
#define STEAD_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define STEAD_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, TileRow{__VA_ARGS__})
#endif

/// Transposes a square tile. Interleaving the upper with the lower half of the rows rotates the bits of (row, column)
/// by one; after four times rows and columns have changed places.
void transpose(std::array<TileRow, tile>& rows) {
    for (int step = 0; step < 4; ++step) {
        std::array<TileRow, tile> next;
        for (int i = 0; i < tile / 2; ++i) {
            const TileRow a = rows[i], b = rows[i + tile / 2];
            next[2 * i] = STEAD_SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            next[2 * i + 1] = STEAD_SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
        rows = next;
    }
}

/// Memory of a kind that vector instructions can use.
struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
};

std::vector<Line> lines(std::int64_t bytes) { return std::vector<Line>((bytes + sizeof(Line) - 1) / sizeof(Line)); }

/// Simulates placements exactly, on one thread.
class ExactTask {
public:
    ExactTask(const Problem& problem, const Orders& orders)
        : problem_(problem), orders_(orders), engine_(problem, false) {}

    float operator()(const DeviceIndex* placement) {
        if (find_obstacle(problem_, placement).status != Status::ok) return std::numeric_limits<float>::infinity();
        return static_cast<float>(static_cast<double>(engine_.simulate(placement, orders_, never, nullptr)) * seconds_per_tick);
    }

private:
    const Problem& problem_;
    const Orders orders_;
    ProgramOrder engine_;
};

/// Screens blocks of placements, on one thread.
class ScreenTask {
public:
    ScreenTask(const Problem& problem, const Placements& placements, const ScreenProgram& program,
               const ScreenKernel& kernel, std::vector<float>& seconds)
        : problem_(problem), placements_(placements), program_(program), kernel_(kernel), seconds_(seconds),
          devices_(lines(std::int64_t{problem.operators} * kernel.lanes)),
          memory_(lines(program.rows() * kernel.lanes * std::int64_t{sizeof(std::int32_t)})),
          exactly_(problem, program.orders()) {}

    void operator()(std::int64_t first_row) {
        load(first_row);
        std::array<std::int32_t, most_kernel_lanes> ends;
        kernel_.run(program_.plan(), devices_.data(), memory_.data(), ends.data());
        const std::int64_t rows = std::min<std::int64_t>(kernel_.lanes, placements_.rows - first_row);
        for (std::int64_t r = 0; r < rows; ++r)
            seconds_[first_row + r] = program_.is_coarse(ends[r]) ? exactly_(placements_.row(first_row + r, problem_))
                                                                  : program_.seconds(ends[r]);
    }

private:
    /// Puts the devices of every operator side by side, in the order of bytes that the kernel wants.
    void load(std::int64_t first_row) {
        const int lanes = kernel_.lanes, width = lanes / 4;
        std::array<const DeviceIndex*, most_kernel_lanes> source;  // by byte; lanes without a row repeat the last one
        for (int byte = 0; byte < lanes; ++byte) {
            const std::int64_t row = first_row + byte % 4 * width + byte / 4;
            source[byte] = placements_.row(std::min(row, placements_.rows - 1), problem_);
        }
        auto* const target = reinterpret_cast<std::uint8_t*>(devices_.data());
        std::int64_t v = 0;
        for (; v + tile <= problem_.operators; v += tile)
            for (int byte = 0; byte < lanes; byte += tile) {
                std::array<TileRow, tile> rows;
                for (int i = 0; i < tile; ++i)
                    for (int j = 0; j < tile; ++j) rows[i][j] = static_cast<std::uint8_t>(source[byte + i][v + j]);
                transpose(rows);
                for (int i = 0; i < tile; ++i) std::memcpy(target + (v + i) * lanes + byte, &rows[i], tile);
            }
        for (; v < problem_.operators; ++v)
            for (int byte = 0; byte < lanes; ++byte) target[v * lanes + byte] = static_cast<std::uint8_t>(source[byte][v]);
    }

    const Problem& problem_;
    const Placements& placements_;
    const ScreenProgram& program_;
    const ScreenKernel& kernel_;
    std::vector<float>& seconds_;
    std::vector<Line> devices_, memory_;
    ExactTask exactly_;
};

}  // namespace

std::vector<float> screen_many(const Problem& problem, const Placements& placements,
                               std::span<const std::int32_t> order, Instructions instructions, const Workers& workers) {
    std::vector<float> seconds(placements.rows);
    std::vector<std::int64_t> rows(placements.rows);
    std::iota(rows.begin(), rows.end(), 0);
    run_rows(rows, {.threads = 1, .interrupted = {}}, [&]() -> RowTask {
        return [&](std::int64_t b) { check_placement(problem, placements.row(b, problem)); };
    });
    const Channels channels = classify_channels(problem);
    if (problem.devices > most_kernel_devices || channels == Channels::mixed) {
        const Orders orders{.order = order, .transfer_order = {}};
        ProgramOrder(problem, false).check(orders);
        run_rows(rows, workers, [&]() -> RowTask {
            const auto task = std::make_shared<ExactTask>(problem, orders);
            return [&, task](std::int64_t b) { seconds[b] = (*task)(placements.row(b, problem)); };
        });
        return seconds;
    }
    const ScreenProgram program(problem, order, channels);
    const ScreenKernel kernel = program.kernel(instructions);
    run_rows(rows, workers, [&]() -> RowTask {
        const auto task = std::make_shared<ScreenTask>(problem, placements, program, kernel, seconds);
        return [&, task](std::int64_t b) {
            if (b % kernel.lanes == 0) (*task)(b);  // the first row of a block stands for all of them
        };
    });
    return seconds;
}

}  // namespace stead
