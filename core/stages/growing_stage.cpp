#include "stages/growing_stage.h"

#include <cmath>

namespace stead {
namespace {

constexpr Ticks huge = Ticks{1} << 61;  // added to any load it does not overflow

Ticks share(Ticks load, int devices) { return devices == 1 ? load : (load + devices - 1) / devices; }

}  // namespace

GrowingStage::GrowingStage(const Stages& stages, const StagePrices& prices)
    : stages_(stages), prices_(prices), phases_(prices.load == LoadKind::fwbw ? 2 : 1),
      transfers_add_up_(prices.load == LoadKind::sum || prices.load == LoadKind::fwbw),
      memory_may_bind_(stages.total_bytes > *std::ranges::min_element(stages.kind_memory)), limit_(stages.kinds, huge),
      where_(stages.nodes, Where::elsewhere), users_(stages.weight_bytes.size(), 0),
      rows_(stages.nodes + 1), compute_((stages.nodes + 1) * stages.kinds * phases_, 0),
      transfers_((stages.nodes + 1) * stages.tariffs * phases_) {
    Kinds usable = 0;
    for (int j = 0; j < stages.kinds; ++j) {
        most_replicas_.push_back(std::min<int>(prices.replicas, stages.kind_count[j]));
        if (stages.kind_count[j] > 0) usable |= Kinds{1} << j;
    }
    rows_[0] = {usable, 0};
    for (std::int64_t t = 0; t < stages.tensors(); ++t)
        tensors_.push_back({.source = stages.source[t],
                            .readers = static_cast<std::int32_t>(stages.readers[t].size()),
                            .inside = 0,
                            .phase = phases_ == 2 ? stages.late[t] : 0});
    nodes_.reserve(stages.nodes);
}

void GrowingStage::cut(Ticks cutoff) {
    for (int j = 0; j < stages_.kinds; ++j) {
        const Ticks most = std::max<Ticks>(1, most_replicas_[j]);
        limit_[j] = cutoff - 1 > huge / most ? huge : (cutoff - 1) * most;
    }
}

bool GrowingStage::push(std::int32_t v, Kinds wanted) {
    const std::size_t now = depth(), next = now + 1;
    Row& row = rows_[next];
    row = {rows_[now].kinds & stages_.runs_on[v], rows_[now].bytes};
    add_compute(v, row);
    if ((row.kinds & wanted) == 0) return false;
    nodes_.push_back(v);
    where_[v] = Where::inside;
    add_bytes(v, row);
    if (!add_transfers(v) && !memory_may_bind_) return true;
    drop_overloaded(row);
    if ((row.kinds & wanted) != 0) return true;
    pop();
    return false;
}

void GrowingStage::pop() {
    const std::int32_t v = nodes_.back();
    nodes_.pop_back();
    where_[v] = Where::elsewhere;
    for (const std::int32_t t : stages_.inputs[v]) --tensors_[t].inside;
    for (const std::int32_t w : stages_.shared_weights[v]) --users_[w];
}

/// With what came from below so far, work alone rules out most kinds before any tensor is touched.
void GrowingStage::add_compute(std::int32_t v, Row& row) {
    const std::size_t width = stages_.kinds * phases_;
    const Ticks* const from = &compute_[depth() * width];
    Ticks* const to = &compute_[(depth() + 1) * width];
    for_each_kind(row.kinds, [&](int j) {
        Ticks work = 0;
        if (phases_ == 1) {
            work = to[j] = from[j] + stages_.total_ticks(v, j);
        } else {
            to[2 * j] = from[2 * j] + stages_.forward_ticks(v, j);
            to[2 * j + 1] = from[2 * j + 1] + stages_.backward_ticks(v, j);
            work = to[2 * j] + to[2 * j + 1];
        }
        if (exceeds_limit(j, work)) row.kinds &= ~(Kinds{1} << j);
    });
}

void GrowingStage::add_bytes(std::int32_t v, Row& row) {
    row.bytes += stages_.own_bytes[v];
    for (const std::int32_t w : stages_.shared_weights[v])
        if (++users_[w] == 1) row.bytes += stages_.weight_bytes[w];
}

/// Returns whether more comes from below than before.
bool GrowingStage::add_transfers(std::int32_t v) {
    const int tariffs = stages_.tariffs, width = tariffs * phases_;
    Transfers* const sums = transfers_.data() + depth() * width;
    for (int i = 0; i < width; ++i) sums[i] = sums[i - width];
    const auto charge = [&](std::int32_t t, auto change) {
        const std::int64_t price = std::int64_t{t} * tariffs;
        Transfers* const sum = sums + tensors_[t].phase * tariffs;
        for (int i = 0; i < tariffs; ++i)
            change(sum[i], stages_.tariff_receive_ticks[price + i], stages_.tariff_send_ticks[price + i]);
    };
    for (const std::int32_t t : stages_.outputs[v]) {
        const Tensor& tensor = tensors_[t];
        charge(t, [&](Transfers& sum, Ticks receive, Ticks send) {
            if (tensor.inside > 0) sum.in -= receive;
            if (tensor.inside < tensor.readers) sum.out += send;
        });
    }
    bool more_from_below = false;
    for (const std::int32_t t : stages_.inputs[v]) {
        Tensor& tensor = tensors_[t];
        ++tensor.inside;
        const Where source = where_[tensor.source];
        if (source == Where::inside) {
            if (tensor.inside == tensor.readers)
                charge(t, [](Transfers& sum, Ticks, Ticks send) { sum.out -= send; });
        } else if (tensor.inside == 1) {
            const bool from_below = source == Where::below;
            charge(t, [&](Transfers& sum, Ticks receive, Ticks) {
                sum.in += receive;
                if (from_below) sum.in_from_below += receive;
            });
            more_from_below |= from_below;
        }
    }
    return more_from_below;
}

/// Drops kinds that are short of memory, or too slow with what comes from below alone: both only get worse.
void GrowingStage::drop_overloaded(Row& row) const {
    for_each_kind(row.kinds, [&](int j) {
        Ticks work = 0;
        for (int phase = 0; phase < phases_; ++phase) work += compute_at(phase, j);
        if (row.bytes > stages_.kind_memory[j] || exceeds_limit(j, work)) row.kinds &= ~(Kinds{1} << j);
    });
}

bool GrowingStage::exceeds_limit(int j, Ticks work) const {
    if (stages_.tariff[j] < 0) return work > limit_[j];
    Ticks in = 0;
    for (int phase = 0; phase < phases_; ++phase) in += transfers_at(phase, j).in_from_below;
    return (transfers_add_up_ ? work + in : std::max(work, in)) > limit_[j];
}

Ticks GrowingStage::load(int j, int phase) const {
    const Ticks compute = compute_at(phase, j);
    if (stages_.tariff[j] < 0) return compute;
    const Transfers& sum = transfers_at(phase, j);
    switch (prices_.load) {
        case LoadKind::overlap: return std::max(compute, sum.in + sum.out);
        case LoadKind::duplex: return std::max({compute, sum.in, sum.out});
        default: return compute + sum.in + sum.out;
    }
}

Cost GrowingStage::cost(int j, int devices) const {
    const Ticks extra = devices == 1 ? 0 : sync(j, devices);
    if (phases_ == 1) return {share(load(j, 0), devices) + extra, 0};
    return {share(load(j, 0), devices), share(load(j, 1), devices) + extra};
}

/// Each of d replicas sends and receives 2 (d - 1) / d of the gradients in a ring, once to add and once to spread them.
Ticks GrowingStage::sync(int j, int devices) const {
    const double bytes = static_cast<double>(rows_[depth()].bytes);
    const double ticks = prices_.sync_ticks_per_byte[j] * bytes * 4.0 * (devices - 1) / devices;
    return ticks < static_cast<double>(huge) ? std::llrint(ticks) : huge;
}

}  // namespace stead
