#include "build/timeline.h"

namespace stead {

Timeline::Timeline(const ListTables& tables, bool fill_gaps)
    : tables_(tables), problem_(tables.problem), fill_gaps_(fill_gaps), idle_(problem_.devices),
      at_(std::int64_t{problem_.tensors} * problem_.devices, -1),
      carried_(problem_.carries ? problem_.tensors : 0, 0), channel_free_(problem_.channels, 0),
      tentative_free_(problem_.channels, 0), tentative_turn_(problem_.channels, 0), device_(problem_.operators, 0),
      start_(problem_.operators, 0) {
    sequence_.reserve(problem_.operators);
}

Ticks Timeline::arrival(std::int32_t t, int d, Offer& offer) {
    const std::int64_t row = std::int64_t{t} * problem_.devices;
    if (at_[row + d] >= 0) return at_[row + d];
    const int source = device_[problem_.producer[t]];
    const Link& way = problem_.link(source, d);
    Ticks begin = at_[row + source];
    if (way.latency == impossible) {
        offer.possible = false;
        return begin;
    }
    const Ticks wire = problem_.wire(t, way);
    offer.moved += wire + way.latency;
    if (way.channel >= 0) {
        const bool used = tentative_turn_[way.channel] == turn_;
        begin = std::max(begin, used ? tentative_free_[way.channel] : channel_free_[way.channel]);
        tentative_free_[way.channel] = begin + wire + way.gap;
        tentative_turn_[way.channel] = turn_;
    }
    return begin + wire + way.latency;
}

Offer Timeline::offer(std::int32_t v, int d) {
    ++turn_;
    Offer offer;
    for (const std::int32_t t : tables_.reads[v]) offer.ready = std::max(offer.ready, arrival(t, d, offer));
    const Ticks length = problem_.duration[std::int64_t{v} * problem_.devices + d];
    offer.start = idle_[d].earliest(offer.ready, length, fill_gaps_);
    offer.finish = offer.start + length;
    return offer;
}

void Timeline::run(std::int32_t v, int d) {
    const Offer taken = offer(v, d);
    ++turn_;
    Offer again;
    for (const std::int32_t t : tables_.reads[v]) {
        Ticks& at = at_[std::int64_t{t} * problem_.devices + d];
        if (at >= 0) continue;
        at = arrival(t, d, again);
        const Link& way = problem_.link(device_[problem_.producer[t]], d);
        const std::int32_t channel = way.channel;
        if (channel == by_sender) carry(t, way);
        if (channel >= 0 && tentative_turn_[channel] == turn_) channel_free_[channel] = tentative_free_[channel];
    }
    idle_[d].take(taken.start, taken.finish);
    device_[v] = static_cast<DeviceIndex>(d);
    start_[v] = taken.start;
    for (std::int32_t t = problem_.tensor_first[v]; t < problem_.tensor_first[v + 1]; ++t)
        at_[std::int64_t{t} * problem_.devices + d] = taken.finish;
    sequence_.push_back(v);
}

void Timeline::carry(std::int32_t t, const Link& way) {
    const Ticks length = problem_.wire(t, way) + way.latency, more = std::max(Ticks{0}, length - carried_[t]);
    carried_[t] += more;  // one copy for all who read it
    idle_[device_[problem_.producer[t]]].delay(more);
}

std::vector<std::int32_t> Timeline::order() const {
    std::vector<std::int32_t> order = sequence_;
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return start_[a] < start_[b]; });
    return order;
}

}  // namespace stead
