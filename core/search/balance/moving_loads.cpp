#include "search/balance/moving_loads.h"

#include <algorithm>
#include <bit>

namespace stead {
namespace {

std::uint64_t bit(int d) { return std::uint64_t{1} << d; }

template <class Visit>
void for_each_device(std::uint64_t devices, Visit visit) {
    for (; devices != 0; devices &= devices - 1) visit(std::countr_zero(devices));
}

}  // namespace

MovingLoads::MovingLoads(const Supernodes& nodes)
    : nodes_(nodes), device_(nodes.count(), 0), lanes_(nodes.devices), new_lanes_(nodes.devices),
      bytes_(nodes.devices, 0), new_bytes_(nodes.devices, 0), read_on_(nodes.bundles(), 0),
      count_row_(nodes.bundles(), -1) {
    std::int32_t counted = 0;
    for (std::int32_t b = 0; b < nodes.bundles(); ++b)
        if (nodes.readers_of(b).size() > 1) count_row_[b] = counted++;
    readers_on_.assign(std::int64_t{counted} * nodes.devices, 0);
}

void MovingLoads::place(std::span<const DeviceIndex> devices) {
    std::ranges::copy(devices, device_.begin());
    std::ranges::fill(lanes_, Lanes{});
    std::ranges::fill(bytes_, 0);
    std::ranges::fill(readers_on_, 0);
    users_on_.clear(std::ssize(nodes_.shared_bytes), nodes_.devices);
    std::ranges::fill(read_on_, 0);
    touched_ = 0;
    new_blocked_ = 0;
    for (int d = 0; d < nodes_.devices; ++d) touch(d);
    for (std::int32_t v = 0; v < nodes_.count(); ++v) {
        move_compute(v, device_[v], 1);
        note_readers(v, device_[v], 1);
        new_bytes_[device_[v]] += nodes_.own_bytes[v];
        for (std::int32_t i = nodes_.shared_first[v]; i < nodes_.shared_first[v + 1]; ++i)
            if (users_on_.add(nodes_.shared[i], device_[v]))
                new_bytes_[device_[v]] += nodes_.shared_bytes[nodes_.shared[i]];
    }
    for (std::int32_t b = 0; b < nodes_.bundles(); ++b) {
        const int s = device_[nodes_.source[b]];
        recharge(b, s, 0, s, read_on_[b]);
    }
    lanes_ = new_lanes_;
    bytes_ = new_bytes_;
    blocked_ = new_blocked_;
    moving_ = -1;
}

void MovingLoads::consider(std::int32_t v, int to) {
    const int from = device_[v];
    moving_ = v;
    target_ = to;
    touched_ = 0;
    new_blocked_ = blocked_;
    touch(from);
    touch(to);
    move_compute(v, from, -1);
    move_compute(v, to, 1);
    new_bytes_[from] -= nodes_.own_bytes[v];
    new_bytes_[to] += nodes_.own_bytes[v];
    for (std::int32_t i = nodes_.shared_first[v]; i < nodes_.shared_first[v + 1]; ++i) {
        const std::int32_t w = nodes_.shared[i];
        if (users_on_.count(w, from) == 1) new_bytes_[from] -= nodes_.shared_bytes[w];
        if (users_on_.count(w, to) == 0) new_bytes_[to] += nodes_.shared_bytes[w];
    }
    for (std::int32_t b = nodes_.written_first[v]; b < nodes_.written_first[v + 1]; ++b)
        recharge(b, from, read_on_[b], to, read_on_[b]);
    for (std::int32_t i = nodes_.read_first[v]; i < nodes_.read_first[v + 1]; ++i) {
        const std::int32_t b = nodes_.read_bundle[i];
        const int s = device_[nodes_.source[b]];
        recharge(b, s, read_on_[b], s, read_on_after(b, from, to));
    }
}

void MovingLoads::commit() {
    const int from = device_[moving_];
    for_each_device(touched_, [&](int d) {
        lanes_[d] = new_lanes_[d];
        bytes_[d] = new_bytes_[d];
    });
    blocked_ = new_blocked_;
    for (std::int32_t i = nodes_.shared_first[moving_]; i < nodes_.shared_first[moving_ + 1]; ++i) {
        users_on_.remove(nodes_.shared[i], from);
        users_on_.add(nodes_.shared[i], target_);
    }
    note_readers(moving_, from, -1);
    note_readers(moving_, target_, 1);
    device_[moving_] = static_cast<DeviceIndex>(target_);
}

Ticks MovingLoads::value() const {
    Lanes largest = {};
    for (const Lanes& lanes : lanes_)
        for (int lane = 0; lane < max_lanes; ++lane) largest[lane] = std::max(largest[lane], lanes[lane]);
    return nodes_.value(largest);
}

Ticks MovingLoads::new_value() const {
    Lanes largest = {};
    for (int d = 0; d < nodes_.devices; ++d) {
        const Lanes& lanes = touched_ >> d & 1 ? new_lanes_[d] : lanes_[d];
        for (int lane = 0; lane < max_lanes; ++lane) largest[lane] = std::max(largest[lane], lanes[lane]);
    }
    return nodes_.value(largest);
}

void MovingLoads::touch(int d) {
    if (touched_ >> d & 1) return;
    touched_ |= bit(d);
    new_lanes_[d] = lanes_[d];
    new_bytes_[d] = bytes_[d];
}

void MovingLoads::pay(int d, Part part, int phase, Ticks ticks, int sign) {
    if (ticks == impossible) {
        new_blocked_ += sign;
        return;
    }
    touch(d);
    new_lanes_[d][nodes_.lane(part, phase)] += sign * ticks;
}

void MovingLoads::recharge_link(std::int32_t b, int s, std::uint64_t targets, int sign) {
    const int phase = nodes_.phase[b];
    for_each_device(targets, [&](int d) {
        const Ticks ticks = nodes_.link(b, s, d);
        pay(d, received, phase, ticks, sign);
        if (ticks != impossible) pay(s, sent, phase, ticks, sign);  // a missing link counts once
    });
}

/// Replaces what bundle b costs from device s to the devices `read_on` by what it costs from `new_s` to `new_read_on`.
void MovingLoads::recharge(std::int32_t b, int s, std::uint64_t read_on, int new_s, std::uint64_t new_read_on) {
    const std::uint64_t before = read_on & ~bit(s), after = new_read_on & ~bit(new_s);
    if (!nodes_.routed_by_host) {
        const std::uint64_t same = s == new_s ? before & after : 0;
        recharge_link(b, s, before & ~same, -1);
        recharge_link(b, new_s, after & ~same, 1);
        return;
    }
    const int phase = nodes_.phase[b];
    if (s != new_s || (before == 0) != (after == 0)) {
        if (before != 0) pay(s, sent, phase, nodes_.write(b, s), -1);
        if (after != 0) pay(new_s, sent, phase, nodes_.write(b, new_s), 1);
    }
    for_each_device(before & ~after, [&](int d) { pay(d, received, phase, nodes_.read(b, d), -1); });
    for_each_device(after & ~before, [&](int d) { pay(d, received, phase, nodes_.read(b, d), 1); });
}

void MovingLoads::move_compute(std::int32_t v, int d, int sign) {
    for (int phase = 0; phase < nodes_.phases; ++phase)
        new_lanes_[d][nodes_.lane(computed, phase)] += sign * nodes_.compute(v, d, phase);
}

/// Where bundle b would be read if one of its readers moved.
std::uint64_t MovingLoads::read_on_after(std::int32_t b, int from, int to) const {
    const std::int32_t row = count_row_[b];
    const bool last = row < 0 || readers_on_[entry(row, from)] == 1;
    return (last ? read_on_[b] & ~bit(from) : read_on_[b]) | bit(to);
}

/// Adds v to the readers on device d, or takes it away.
void MovingLoads::note_readers(std::int32_t v, int d, int sign) {
    for (std::int32_t i = nodes_.read_first[v]; i < nodes_.read_first[v + 1]; ++i) {
        const std::int32_t b = nodes_.read_bundle[i], row = count_row_[b];
        const bool any = row < 0 ? sign > 0 : (readers_on_[entry(row, d)] += sign) > 0;
        read_on_[b] = any ? read_on_[b] | bit(d) : read_on_[b] & ~bit(d);
    }
}

}  // namespace stead
