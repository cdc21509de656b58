#include "search/decoder.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/placement.h"

namespace stead {
namespace {

constexpr Ticks unused = -1;          // a device or channel that nothing behind needs
constexpr std::int64_t unknown = -1;  // no entry is known to be on a longest path

/// Checkpoints cost memory and time when a change is kept, distance between them when one is judged.
std::int32_t checkpoint_step(std::int32_t operators) {
    return operators < 4096 ? 16 : operators < 32768 ? 32 : 64;
}

}  // namespace

DecodeTables::DecodeTables(const Problem& problem)
    : reads(transposed(problem.operators, problem.consumer_first, problem.consumer)), behind(problem.operators),
      step(checkpoint_step(problem.operators)) {
    const std::int64_t k = problem.devices;
    for (std::int32_t v = problem.operators - 1; v >= 0; --v) {
        Ticks least = never;
        for (int d = 0; d < k; ++d)
            if (problem.duration[v * k + d] != impossible) least = std::min(least, problem.duration[v * k + d]);
        for (const std::int32_t t : reads[v]) {
            Ticks& before = behind[problem.producer[t]];
            before = std::max(before, least + behind[v]);
        }
    }
}

Decoder::Decoder(const Problem& problem, const DecodeTables& tables)
    : problem_(problem), tables_(tables), view_(problem), operators_(problem.operators), devices_(problem.devices),
      step_(tables.step), width_(problem.devices + problem.channels), device_(operators_), settled_(operators_),
      order_(operators_), position_(operators_), finish_(operators_), at_(problem.tensors * devices_),
      tail_(operators_), heads_((checkpoint_at(operators_) + 1) * width_), tails_(heads_.size()),
      longest_finish_(checkpoint_at(operators_) + 1), now_(width_), after_(operators_),
      crossing_(checkpoint_at(operators_) + 1) {}

void Decoder::load(const DeviceIndex* placement, const std::int32_t* order, Sends sends) {
    forget();
    sends_ = sends;
    rest_ = tables_.behind.data();
    if (sends_ == Sends::by_reader) {
        booked_.assign(at_.size(), {operators_, pass_});
        send_tail_.resize(at_.size());
    }
    std::copy_n(placement, operators_, device_.begin());
    settled_ = device_;
    std::copy_n(order, operators_, order_.begin());
    for (std::int32_t i = 0; i < operators_; ++i) position_[order_[i]] = i;
    std::fill_n(head(0), width_, 0);
    std::fill_n(tails(checkpoint_at(operators_)), width_, unused);
    longest_finish_[0] = 0;
    heads_valid_ = 0;
    tails_valid_ = operators_;
    advance(0, operators_);
    makespan_ = now_longest_;
    open(0, operators_);
}

void Decoder::open(std::int32_t first, std::int32_t last) {
    first_ = first / step_ * step_;
    last_ = std::min(operators_, checkpoint_at(last) * step_);
    if (heads_valid_ < last_) advance(heads_valid_, last_);
    if (tails_valid_ > first_) retreat(tails_valid_, first_);
    find_frontier();
    certify();
}

// ---- Forward ----

template <Decoder::Pass kPass>
[[gnu::always_inline]] inline void Decoder::note(std::vector<Ticks>& values, std::vector<Undo>& log,
                                                 std::int64_t index, Ticks value) {
    if (kPass != Pass::trial_behind && values[index] == value) return;
    if constexpr (kPass != Pass::settle) log.push_back({index, values[index]});
    values[index] = value;
}

/// Decodes positions from `begin` to `end`, starting from now_; false as soon as one cannot end before `cut`.
template <Decoder::Pass kPass, bool kCarries>
bool Decoder::run_by_producer(std::int32_t begin, std::int32_t end, Ticks cut) {
    const View<0> view = view_;
    Ticks* const free = now_.data();
    Ticks* const channel_free = free + devices_;
    const std::int32_t* const read_first = tables_.reads.first.data();
    const std::int32_t* const read = tables_.reads.items.data();
    const DeviceIndex* const device = device_.data();
    const Ticks* const rest = rest_;
    const std::int64_t k = devices_;
    constexpr bool is_trial = kPass != Pass::settle;
    Forget forget(nullptr);
    Ticks longest = now_longest_;
    for (std::int32_t i = begin; i < end; ++i) {
        const std::int32_t v = order_[i];
        const int d = device[v];
        Ticks start = free[d];
        for (std::int32_t r = read_first[v]; r < read_first[v + 1]; ++r) start = std::max(start, at_[read[r] * k + d]);
        const Ticks finish = start + view.durations[v * k + d];
        if (is_trial && finish + rest[v] > cut) {
            decoded_ += i - begin + 1;
            return false;
        }
        free[d] = finish;
        longest = std::max(longest, finish);
        note<kPass>(finish_, finish_log_, v, finish);
        Carrier carrier(finish);
        for (std::int32_t t = view.tensor_first[v]; t < view.tensor_first[v + 1]; ++t) {
            note<kPass>(at_, at_log_, t * k + d, finish);
            std::uint64_t seen = std::uint64_t{1} << d;
            for (std::int32_t c = view.consumer_first[t]; c < view.consumer_first[t + 1]; ++c) {
                const int target = device[view.consumer[c]];
                if (seen >> target & 1) continue;
                seen |= std::uint64_t{1} << target;
                if (is_trial && view.links[d * k + target].latency == impossible) {
                    decoded_ += i - begin + 1;
                    return false;
                }
                note<kPass>(at_, at_log_, t * k + target,
                            book(view, t, d, target, finish, channel_free, carrier, forget));
            }
            if constexpr (kCarries) carrier.next_tensor();
        }
        if constexpr (kCarries) free[d] = carrier.end;
    }
    now_longest_ = longest;
    decoded_ += end - begin;
    return true;
}

/// The same, but a tensor is booked when its first reader comes up, in the order in which that reads.
template <Decoder::Pass kPass>
bool Decoder::run_by_reader(std::int32_t begin, std::int32_t end, Ticks cut) {
    const View<0> view = view_;
    Ticks* const free = now_.data();
    Ticks* const channel_free = free + devices_;
    const std::int32_t* const read_first = tables_.reads.first.data();
    const std::int32_t* const read = tables_.reads.items.data();
    const std::int32_t* const producer = problem_.producer.data();
    const DeviceIndex* const device = device_.data();
    const Ticks* const rest = rest_;
    const std::int64_t k = devices_;
    constexpr bool is_trial = kPass != Pass::settle;
    Forget forget(nullptr);
    Ticks longest = now_longest_;
    for (std::int32_t i = begin; i < end; ++i) {
        const std::int32_t v = order_[i];
        const int d = device[v];
        Ticks start = free[d];
        for (std::int32_t r = read_first[v]; r < read_first[v + 1]; ++r) {
            const std::int32_t t = read[r];
            const std::int64_t index = t * k + d;
            const int source = device[producer[t]];
            if (source != d && !is_booked(index)) {
                if (is_trial && view.links[source * k + d].latency == impossible) {
                    decoded_ += i - begin + 1;
                    return false;
                }
                if constexpr (is_trial) booked_log_.push_back({index, booked_[index]});
                booked_[index] = {i, pass_};
                Carrier nobody(at_[t * k + source]);  // where devices carry, sends are by producer
                note<kPass>(at_, at_log_, index,
                            book(view, t, source, d, at_[t * k + source], channel_free, nobody, forget));
            }
            start = std::max(start, at_[index]);
        }
        const Ticks finish = start + view.durations[v * k + d];
        if (is_trial && finish + rest[v] > cut) {
            decoded_ += i - begin + 1;
            return false;
        }
        free[d] = finish;
        longest = std::max(longest, finish);
        note<kPass>(finish_, finish_log_, v, finish);
        for (std::int32_t t = view.tensor_first[v]; t < view.tensor_first[v + 1]; ++t)
            note<kPass>(at_, at_log_, t * k + d, finish);
    }
    now_longest_ = longest;
    decoded_ += end - begin;
    return true;
}

/// Whether a tensor has been sent in this pass, or before the positions that it decodes.
inline bool Decoder::is_booked(std::int64_t index) const {
    return booked_[index].pass == pass_ || booked_[index].position < pass_begin_;
}

/// What was booked from `position` on holds no longer, until it is booked again.
void Decoder::begin_pass(std::int32_t position) {
    pass_begin_ = position;
    if (sends_ == Sends::by_producer || ++pass_ != 0) return;
    for (Booking& booking : booked_) booking.pass = 0;  // the number has been used up: begin again
    pass_ = 1;
}

/// Decodes for good, and writes the checkpoints. `begin` is one.
void Decoder::advance(std::int32_t begin, std::int32_t end) {
    begin_pass(begin);
    std::int32_t checkpoint = begin / step_;
    std::copy_n(head(checkpoint), width_, now_.begin());
    now_longest_ = longest_finish_[checkpoint];
    for (std::int32_t i = begin; i < end; i += step_) {
        run<Pass::settle>(i, std::min(i + step_, end), never);
        ++checkpoint;
        std::copy_n(now_.begin(), width_, head(checkpoint));
        longest_finish_[checkpoint] = now_longest_;
    }
    heads_valid_ = end;
}

// ---- Backward ----

/// Tails of positions before `end` down to `begin`; both are checkpoints, `end` has valid tails.
void Decoder::retreat(std::int32_t end, std::int32_t begin) {
    Ticks* const frontier = now_.data();
    std::int32_t checkpoint = checkpoint_at(end);
    std::copy_n(tails(checkpoint), width_, frontier);
    for (std::int32_t i = end - 1; i >= begin; --i) {
        if (problem_.carries)
            retreat_by_producer<true>(order_[i], frontier);
        else if (sends_ == Sends::by_producer)
            retreat_by_producer<false>(order_[i], frontier);
        else
            retreat_by_reader(order_[i], frontier);
        after_[order_[i]] = tail_[order_[i]] - duration(order_[i], device_[order_[i]]);
        if (i % step_ == 0) std::copy_n(frontier, width_, tails(i / step_));
    }
    decoded_ += end - begin;
    tails_valid_ = begin;
}

/// Ticks from the begin of a send to the end; it becomes the next of its channel.
inline Ticks Decoder::tail_of_send(std::int32_t t, const Link& way, Ticks behind, Ticks* frontier) const {
    const Ticks wire = view_.wire(t, way);
    Ticks tail = wire + way.latency + behind;
    if (way.channel >= 0) {
        Ticks& next = frontier[devices_ + way.channel];
        if (next != unused) tail = std::max(tail, wire + way.gap + next);
        next = tail;
    }
    return tail;
}

template <bool kCarries>
void Decoder::retreat_by_producer(std::int32_t v, Ticks* frontier) {
    const int d = device_[v];
    Ticks longest = 0;
    Ticks carried = frontier[d];  // from the begin of the copy of tensor t, or what follows, to the end
    for (std::int32_t t = view_.tensor_first[v + 1] - 1; t >= view_.tensor_first[v]; --t) {
        Ticks behind[mask_devices];
        int targets[mask_devices], count = 0;
        std::uint64_t seen = std::uint64_t{1} << d;
        behind[d] = 0;
        for (std::int32_t c = view_.consumer_first[t]; c < view_.consumer_first[t + 1]; ++c) {
            const std::int32_t reader = view_.consumer[c];
            const int target = device_[reader];
            if (!(seen >> target & 1)) {
                seen |= std::uint64_t{1} << target;
                targets[count++] = target;
                behind[target] = 0;
            }
            behind[target] = std::max(behind[target], tail_[reader]);
        }
        longest = std::max(longest, behind[d]);
        Ticks copy = 0, over_readers = unused;
        while (count-- > 0) {  // the last transfer first
            const int target = targets[count];
            const Link& way = view_.link(d, target);
            const Ticks tail = tail_of_send(t, way, behind[target], frontier);
            if (kCarries && way.channel == by_sender) {
                copy = std::max(copy, view_.wire(t, way) + way.latency);
                over_readers = std::max(over_readers, tail);
            } else {
                longest = std::max(longest, tail);
            }
        }
        if constexpr (kCarries) carried = std::max(over_readers, carried == unused ? unused : copy + carried);
    }
    longest = std::max(longest, carried);
    frontier[d] = tail_[v] = duration(v, d) + longest;
}

void Decoder::retreat_by_reader(std::int32_t v, Ticks* frontier) {
    const int d = device_[v];
    const std::int32_t at = position_[v];
    Ticks longest = std::max(Ticks{0}, frontier[d]);
    for (std::int32_t t = view_.tensor_first[v]; t < view_.tensor_first[v + 1]; ++t)
        for (std::int32_t c = view_.consumer_first[t]; c < view_.consumer_first[t + 1]; ++c) {
            const std::int32_t reader = view_.consumer[c];
            const int target = device_[reader];
            longest = std::max(longest, target == d ? tail_[reader] : send_tail_[t * devices_ + target]);
        }
    frontier[d] = tail_[v] = duration(v, d) + longest;
    const std::span<const std::int32_t> reads = tables_.reads[v];
    for (auto entry = reads.rbegin(); entry != reads.rend(); ++entry) {  // the last transfer first
        const std::int32_t t = *entry;
        const int source = device_[problem_.producer[t]];
        const std::int64_t index = t * devices_ + d;
        if (source == d || booked_[index].position != at) continue;
        send_tail_[index] = tail_of_send(t, view_.link(source, d), longest_behind(t, d, at), frontier);
    }
}

// ---- Changes ----

void Decoder::place(std::int32_t v, int d) {
    if (device_[v] == settled_[v]) placed_.push_back(v);
    device_[v] = static_cast<DeviceIndex>(d);
}

void Decoder::arrange(std::int32_t begin, std::span<const std::int32_t> operators) {
    for (const std::int32_t v : operators) {
        if (order_[begin] != v) arranged_.emplace_back(begin, order_[begin]);
        order_[begin] = v;
        position_[v] = begin++;
    }
}

/// Whether the transfers of tensor `t` are others, or in another order, than before the change.
bool Decoder::sends_differ(std::int32_t t) const {
    const std::int32_t producer = problem_.producer[t];
    std::uint64_t seen = std::uint64_t{1} << device_[producer], seen_before = seen;
    DeviceIndex targets[mask_devices], before[mask_devices];
    int count = 0, count_before = 0;
    for (std::int32_t c = problem_.consumer_first[t]; c < problem_.consumer_first[t + 1]; ++c) {
        const DeviceIndex now = device_[problem_.consumer[c]], old = settled_[problem_.consumer[c]];
        if (!(seen >> now & 1)) targets[count++] = now;
        if (!(seen_before >> old & 1)) before[count_before++] = old;
        seen |= std::uint64_t{1} << now;
        seen_before |= std::uint64_t{1} << old;
    }
    return count != count_before || !std::equal(targets, targets + count, before);
}

void Decoder::find_sends_changed(std::int32_t v) {
    for (const std::int32_t t : tables_.reads[v]) {
        const std::int32_t at = position_[problem_.producer[t]];
        if (at < change_begin_ && sends_differ(t)) change_begin_ = at;
    }
}

/// Sends by reader: what `v` leaves, joins or sends itself is booked elsewhere, up to the last reader that books.
void Decoder::find_bookings_changed(std::int32_t v) {
    const auto include_first = [&](std::int32_t t, const std::vector<DeviceIndex>& device, int d) {
        std::int32_t first = -1;
        for (std::int32_t c = problem_.consumer_first[t]; c < problem_.consumer_first[t + 1]; ++c) {
            const std::int32_t reader = problem_.consumer[c];
            if (device[reader] == d && (first < 0 || position_[reader] < first)) first = position_[reader];
        }
        change_end_ = std::max(change_end_, first + 1);
    };
    for (const std::int32_t t : tables_.reads[v]) {
        include_first(t, device_, settled_[v]);
        include_first(t, settled_, device_[v]);
    }
    for (std::int32_t t = problem_.tensor_first[v]; t < problem_.tensor_first[v + 1]; ++t) {
        std::int32_t first[mask_devices];
        std::uint64_t seen = 0;
        for (std::int32_t c = problem_.consumer_first[t]; c < problem_.consumer_first[t + 1]; ++c) {
            const std::int32_t reader = problem_.consumer[c];
            const int d = device_[reader];
            first[d] = seen >> d & 1 ? std::min(first[d], position_[reader]) : position_[reader];
            seen |= std::uint64_t{1} << d;
        }
        for (; seen; seen &= seen - 1) change_end_ = std::max(change_end_, first[std::countr_zero(seen)] + 1);
    }
}

/// The positions that change in any way.
void Decoder::find_range() {
    change_begin_ = operators_;
    change_end_ = 0;
    const auto include = [&](std::int32_t position) {
        change_begin_ = std::min(change_begin_, position);
        change_end_ = std::max(change_end_, position + 1);
    };
    for (const auto& [position, v] : arranged_) include(position);
    for (const std::int32_t v : placed_) include(position_[v]);
    for (const std::int32_t v : placed_)
        if (sends_ == Sends::by_producer)
            find_sends_changed(v);
        else
            find_bookings_changed(v);
    run_begin_ = change_begin_ / step_ * step_;
    // Tails are known from the window on; sends by reader may change even behind it.
    run_end_ = std::clamp(checkpoint_at(change_end_) * step_, first_, operators_);
}

Ticks Decoder::evaluate(Ticks threshold, Ticks patience) {
    if (patience < never - threshold && is_hopeless(threshold + patience)) {
        decoded_ += std::ssize(placed_);
        change_begin_ = change_end_ = 0;
        return never;
    }
    find_range();
    if (change_begin_ >= change_end_) return makespan_ <= threshold ? makespan_ : never;
    const std::int32_t begin = run_begin_ / step_;
    std::copy_n(head(begin), width_, now_.begin());
    now_longest_ = longest_finish_[begin];
    begin_pass(run_begin_);
    if (!try_changes(threshold, patience)) return never;
    // What changed decides, unless all of it became shorter than the makespan was.
    const std::int32_t checkpoint = checkpoint_at(run_end_);
    const Ticks changed = std::max({now_longest_, over_resources(checkpoint), over_changed_tensors(run_end_)});
    if (changed > threshold) return never;
    if (changed >= makespan_) return changed;
    if (still_critical(checkpoint)) return makespan_ <= threshold ? makespan_ : never;
    const std::int32_t stop = run_end_ <= last_ ? last_ : operators_;  // where the frontier is known
    if (!run<Pass::trial>(run_end_, stop, threshold)) return never;
    const Ticks over_tensors = stop == last_ ? over_frontier() : 0;
    const Ticks exact = std::max({now_longest_, over_resources(checkpoint_at(stop)), over_tensors});
    return exact <= threshold ? exact : never;
}

/// Decodes what changes; false as soon as something cannot end before the threshold or, with patience, is not likely to.
bool Decoder::try_changes(Ticks threshold, Ticks patience) {
    const std::int32_t inside = std::min(run_end_, last_);
    const bool hasty = patience < never - threshold;  // else it could never give up sooner
    const Ticks cut = hasty ? threshold + patience : threshold;
    if (hasty) {
        for (const std::int32_t v : placed_) after_[v] = tables_.behind[v];
        for (const auto& [position, v] : arranged_) after_[v] = tables_.behind[v];
        rest_ = after_.data();
    }
    const bool may_do = run<Pass::trial>(run_begin_, inside, cut) && run<Pass::trial_behind>(inside, run_end_, cut);
    rest_ = tables_.behind.data();
    if (hasty) {
        for (const std::int32_t v : placed_) after_[v] = tail_[v] - duration(v, settled_[v]);
        for (const auto& [position, v] : arranged_) after_[v] = tail_[v] - duration(v, settled_[v]);
    }
    return may_do;
}

/// The longest path over a device or channel from now_ to the end.
Ticks Decoder::over_resources(std::int32_t checkpoint) {
    const Ticks* const tail = tails(checkpoint);
    Ticks longest = 0;
    for (std::int64_t i = 0; i < width_; ++i)
        if (tail[i] != unused) longest = std::max(longest, now_[i] + tail[i]);
    return longest;
}

/// The longest tail of a reader of tensor `t` on device `d` that stands at `position` or behind, and of what is sent
/// from `d` only there; -1 without one.
Ticks Decoder::longest_behind(std::int32_t t, int d, std::int32_t position) const {
    Ticks longest = unused;
    const bool sends = sends_ == Sends::by_reader && device_[problem_.producer[t]] == d;
    for (std::int32_t c = problem_.consumer_first[t]; c < problem_.consumer_first[t + 1]; ++c) {
        const std::int32_t reader = problem_.consumer[c];
        if (position_[reader] < position) continue;
        const int target = device_[reader];
        if (target == d)
            longest = std::max(longest, tail_[reader]);
        else if (sends && !is_booked(t * devices_ + target))
            longest = std::max(longest, send_tail_[t * devices_ + target]);
    }
    return longest;
}

/// The longest path over a tensor that arrives at another time than before and is read at `position` or behind.
Ticks Decoder::over_changed_tensors(std::int32_t position) const {
    Ticks longest = 0;
    for (const Undo& change : at_log_) {
        const Ticks behind = longest_behind(static_cast<std::int32_t>(change.index / devices_),
                                            static_cast<int>(change.index % devices_), position);
        if (behind != unused) longest = std::max(longest, at_[change.index] + behind);
    }
    return longest;
}

Ticks Decoder::over_frontier() const {
    Ticks longest = 0;
    for (const Frontier& tensor : frontier_) longest = std::max(longest, at_[tensor.index] + tensor.beyond);
    return longest;
}

/// Whether a longest path is known to be as long as before: it crosses the checkpoint over a tensor that did not
/// change.
bool Decoder::still_critical(std::int32_t checkpoint) const {
    if (checkpoint > checkpoint_at(last_)) return false;  // not looked for
    const std::int64_t index = crossing_[checkpoint];
    if (index == unknown) return false;
    return std::none_of(at_log_.begin(), at_log_.end(), [&](const Undo& change) { return change.index == index; });
}

void Decoder::keep() {
    if (sends_ == Sends::by_reader) forget_bookings();
    for (const std::int32_t v : placed_) settled_[v] = device_[v];
    const std::int32_t begin = run_begin_, end = run_end_;
    const bool changes = change_begin_ < change_end_;
    forget();
    if (!changes) return;
    advance(begin, last_);
    const Ticks inside = now_longest_;
    if (end > first_) retreat(end, first_);
    tails_valid_ = first_;
    if (end > last_) find_frontier();
    std::copy_n(head(checkpoint_at(last_)), width_, now_.begin());
    makespan_ = std::max({inside, over_resources(checkpoint_at(last_)), over_frontier()});
    certify();
}

/// Forgets what is not booked any more: by readers that leave a device, and to the device that a producer joins.
void Decoder::forget_bookings() {
    const auto forget = [&](std::int64_t index) {
        if (booked_[index].position >= run_begin_ && booked_[index].pass != pass_)
            booked_[index].position = operators_;
    };
    for (const std::int32_t v : placed_) {
        for (const std::int32_t t : tables_.reads[v]) forget(t * devices_ + settled_[v]);
        for (std::int32_t t = problem_.tensor_first[v]; t < problem_.tensor_first[v + 1]; ++t)
            forget(t * devices_ + device_[v]);
    }
}

void Decoder::drop() {
    undo();
    for (const std::int32_t v : placed_) device_[v] = settled_[v];
    for (auto entry = arranged_.rbegin(); entry != arranged_.rend(); ++entry) order_[entry->first] = entry->second;
    for (const auto& [position, v] : arranged_) position_[order_[position]] = position;
    forget();
}

void Decoder::undo() {
    for (auto entry = at_log_.rbegin(); entry != at_log_.rend(); ++entry) at_[entry->index] = entry->old;
    for (auto entry = finish_log_.rbegin(); entry != finish_log_.rend(); ++entry) finish_[entry->index] = entry->old;
    for (auto entry = booked_log_.rbegin(); entry != booked_log_.rend(); ++entry) booked_[entry->index] = entry->old;
}

void Decoder::forget() {
    placed_.clear();
    arranged_.clear();
    at_log_.clear();
    finish_log_.clear();
    booked_log_.clear();
}

// ---- The window ----

/// Tensors that are produced before the end of the window and read or sent behind it.
void Decoder::find_frontier() {
    frontier_.clear();
    if (last_ == operators_) return;
    for (std::int32_t i = 0; i < last_; ++i) {
        const std::int32_t v = order_[i];
        for (std::int32_t t = view_.tensor_first[v]; t < view_.tensor_first[v + 1]; ++t) {
            Ticks beyond[mask_devices];
            std::uint64_t seen = 0;
            for (std::int32_t c = view_.consumer_first[t]; c < view_.consumer_first[t + 1]; ++c) {
                const std::int32_t reader = view_.consumer[c];
                if (position_[reader] < last_) continue;
                int d = device_[reader];
                Ticks tail = tail_[reader];
                if (sends_ == Sends::by_reader && d != device_[v] && booked_[t * devices_ + d].position >= last_) {
                    tail = send_tail_[t * devices_ + d];
                    d = device_[v];
                }
                beyond[d] = seen >> d & 1 ? std::max(beyond[d], tail) : tail;
                seen |= std::uint64_t{1} << d;
            }
            for (; seen; seen &= seen - 1) {
                const int d = std::countr_zero(seen);
                frontier_.push_back({t * devices_ + d, beyond[d]});
            }
        }
    }
}

/// Collects what is critical. At checkpoints where a device or channel is on a longest path none is looked for: these
/// are always judged.
void Decoder::certify() {
    const std::int32_t lowest = first_ / step_, highest = checkpoint_at(last_);
    std::fill(crossing_.begin() + lowest, crossing_.begin() + highest + 1, unknown);
    critical_.clear();
    for (std::int32_t i = first_; i < last_; ++i) {
        const std::int32_t v = order_[i];
        if (start(v) + tail_[v] == makespan_) critical_.push_back(v);
    }
    for (const Frontier& tensor : frontier_)
        if (at_[tensor.index] + tensor.beyond == makespan_) crossing_[highest] = tensor.index;
    std::int32_t open = highest;  // checkpoints above it have been dealt with
    for (auto entry = critical_.rbegin(); entry != critical_.rend(); ++entry) find_crossings(*entry, open);
}

/// Notes where a longest path to `v` crosses checkpoints over a tensor.
void Decoder::find_crossings(std::int32_t v, std::int32_t& open) {
    const Ticks begins = start(v);
    const int d = device_[v];
    for (const std::int32_t t : tables_.reads[v]) {
        const std::int64_t index = t * devices_ + d;
        if (at_[index] != begins) continue;
        const std::int32_t p = problem_.producer[t], produced = position_[p];
        const int source = device_[p];
        if (sends_ == Sends::by_producer || source == d) {
            cross(index, produced, position_[v], open);
            continue;
        }
        // Before it is sent the tensor waits where it was produced, and decides if the channel is free.
        const std::int32_t sent = booked_[index].position;
        cross(index, sent, position_[v], open);
        const Link& way = view_.link(source, d);
        if (finish_[p] + view_.wire(t, way) + way.latency == begins)
            cross(t * devices_ + source, produced, sent, open);
    }
}

/// An entry of at_ is on a longest path at open checkpoints behind one position and not behind another.
void Decoder::cross(std::int64_t index, std::int32_t behind, std::int32_t up_to, std::int32_t& open) {
    const std::int32_t top = std::min(open, up_to / step_), bottom = std::max(first_ / step_, behind / step_ + 1);
    for (std::int32_t c = top; c >= bottom; --c) crossing_[c] = index;
    open = std::min(open, bottom - 1);
}

}  // namespace stead
