// Whether a staged change has any hope, by the operators that move alone, before anything is decoded.
#include <algorithm>

#include "search/decoder.h"

namespace stead {
namespace {

constexpr std::size_t most_asked = 24;  // operators that move; with more, what they do to each other decides

}  // namespace

/// When device `d` is free at position `at`: what stays there counts, what leaves it does not.
Ticks Decoder::free_at(int d, std::int32_t at) {
    const std::int32_t checkpoint = at / step_;
    Ticks leaving = 0;
    for (const std::int32_t u : placed_)
        if (settled_[u] == d && position_[u] < at) leaving += duration(u, d);
    for (std::int32_t i = at - 1; i >= checkpoint * step_; --i) {
        const std::int32_t u = order_[i];
        if (settled_[u] == d && device_[u] == d) return finish_[u] - leaving;
    }
    return head(checkpoint)[d] - leaving;
}

/// From the next use of device `d` behind position `at` to the end.
Ticks Decoder::tail_behind(int d, std::int32_t at) {
    const std::int32_t checkpoint = at / step_ + 1;
    const std::int32_t end = std::min(checkpoint * step_, operators_);
    Ticks leaving = 0;
    for (const std::int32_t u : placed_)
        if (settled_[u] == d && position_[u] > at) leaving += duration(u, d);
    for (std::int32_t i = at + 1; i < end; ++i) {
        const std::int32_t u = order_[i];
        if (settled_[u] == d && device_[u] == d) return tail_[u] - leaving;
    }
    return tails(std::min(checkpoint, checkpoint_at(operators_)))[d] - leaving;
}

/// When tensor `t` can be on device `d` for a reader at position `at`, if its producer ends at `finish`.
Ticks Decoder::earliest_arrival(std::int32_t t, int d, std::int32_t at, Ticks finish) {
    const std::int32_t p = problem_.producer[t];
    const int source = device_[p];
    if (source == d) return finish;
    const std::int64_t index = t * devices_ + d;
    if (settled_[p] == source) {
        const auto is_there = [&](std::int32_t reader) { return settled_[reader] == d && device_[reader] == d; };
        const std::int32_t* const readers = problem_.consumer.data();
        const bool sent = sends_ == Sends::by_reader
                              ? booked_[index].position < at
                              : std::any_of(readers + problem_.consumer_first[t],
                                            readers + problem_.consumer_first[t + 1], is_there);
        if (sent) return at_[index];
    }
    const Link& way = view_.link(source, d);
    if (way.latency == impossible) return never;
    Ticks begin = finish;
    const std::int32_t booked = sends_ == Sends::by_reader ? at : position_[p];
    if (way.channel >= 0) begin = std::max(begin, head(booked / step_)[devices_ + way.channel]);
    return begin + view_.wire(t, way) + way.latency;
}

/// Whether an operator that moves would end so late that the schedule exceeds `cut` if all behind it took as long as
/// before. Now and then it errs, where what an operator leaves behind gets shorter.
bool Decoder::is_hopeless(Ticks cut) {
    if (placed_.empty() || placed_.size() > most_asked || !arranged_.empty()) return false;
    std::ranges::sort(placed_, {}, [&](std::int32_t v) { return position_[v]; });
    outlook_.clear();
    const auto finish_of = [&](std::int32_t p) {
        if (device_[p] == settled_[p]) return finish_[p];
        return std::ranges::find(outlook_, p, &std::pair<std::int32_t, Ticks>::first)->second;
    };
    for (const std::int32_t v : placed_) {
        const std::int32_t at = position_[v];
        const int d = device_[v];
        Ticks start = free_at(d, at);
        for (const std::int32_t t : tables_.reads[v]) {
            const Ticks arrives = earliest_arrival(t, d, at, finish_of(problem_.producer[t]));
            if (arrives == never) return true;
            start = std::max(start, arrives);
        }
        const Ticks finish = start + duration(v, d);
        outlook_.emplace_back(v, finish);
        if (at < first_) continue;  // tails are not known there
        Ticks rest = std::max(Ticks{0}, tail_behind(d, at));
        for (std::int32_t t = view_.tensor_first[v]; t < view_.tensor_first[v + 1]; ++t)
            for (std::int32_t c = view_.consumer_first[t]; c < view_.consumer_first[t + 1]; ++c) {
                const std::int32_t reader = view_.consumer[c];
                const int e = device_[reader];
                if (e != settled_[reader]) continue;  // which is asked itself
                const Link& way = view_.link(d, e);
                if (e != d && way.latency == impossible) return true;
                rest = std::max(rest, tail_[reader] + (e == d ? 0 : view_.wire(t, way) + way.latency));
            }
        if (finish + rest > cut) return true;
    }
    return false;
}

}  // namespace stead
