#include "bounds/block_search.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "base/problem.h"
#include "bounds/area.h"

namespace stead {

namespace {

constexpr Ticks near_enough = 512;  // of what is known: closer than that one tries to settle it at once
constexpr int tries = 4;            // that share the steps

Ticks later(Ticks moment, Ticks delay) { return moment == never || delay == never ? never : moment + delay; }

template <class Use>
void each_device(std::uint64_t devices, Use use) {
    for (; devices; devices &= devices - 1) use(std::countr_zero(devices));
}

}  // namespace

BlockSearch::BlockSearch(const Block& block)
    : block_(block), devices_(block.devices), count_(block.size()), least_work_(count_, never), allowed_(count_),
      before_(count_ + 1), head_(block.work.size()), tail_(block.work.size()) {
    reader_first_.assign(count_ + 1, 0);
    for (const Block::Read& read : block.reads)
        if (read.from >= 0) ++reader_first_[read.from + 1];
    std::partial_sum(reader_first_.begin(), reader_first_.end(), reader_first_.begin());
    reader_.resize(reader_first_[count_]);
    std::vector<std::int32_t> next(reader_first_.begin(), reader_first_.end() - 1);
    std::vector<Ticks> ticks(block.work.size());
    for (int v = 0; v < count_; ++v) {
        for (const Block::Read& read : block.reads_of(v))
            if (read.from >= 0) reader_[next[read.from]++] = {v, read.tensor};
        for (int d = 0; d < devices_; ++d) {
            const Ticks own = block.work_of(v, d);
            least_work_[v] = std::min(least_work_[v], own);
            ticks[static_cast<std::size_t>(v) * devices_ + d] = own == never ? impossible : own;
        }
        has_units_ = has_units_ || block.unit[v] != v;
    }
    const std::vector<std::int64_t> no_bytes(count_, 0), room(devices_, 0);
    const std::vector<std::uint8_t> busy(devices_, 1);
    prices_ = area({static_cast<std::size_t>(count_), devices_, ticks, no_bytes, room, busy}, false).prices;
}

/// All devices that operators may be on; false where head, end or an operator has none.
bool BlockSearch::begin(int head, int end) {
    head_device_ = head;
    end_device_ = end;
    for (int v = 0; v < count_; ++v) {
        allowed_[v] = 0;
        for (int d = 0; d < devices_; ++d)
            if (block_.work_of(v, d) != never) allowed_[v] |= Devices{1} << d;
    }
    if (block_.head_unit >= 0) allowed_[block_.head_unit] &= Devices{1} << head;
    if (block_.has_end) allowed_[count_ - 1] &= Devices{1} << end;
    bool changed = false;
    return share_units(changed) && std::find(allowed_.begin(), allowed_.end(), 0) == allowed_.end();
}

Ticks BlockSearch::longest_path(int head, int end) {
    to_beat_ = never;
    bool changed = false;
    if (!begin(head, end) || !follow_paths(changed)) return never;
    Ticks longest = 0;
    for (int v = 0; v < count_; ++v) {
        Ticks through = never;
        each_device(allowed_[v], [&](int d) {
            through = std::min(through, later(later(head_of(v, d), block_.work_of(v, d)), tail_of(v, d)));
        });
        longest = std::max(longest, through);
    }
    return longest;
}

std::int64_t BlockSearch::narrow(int head, int end, Span& known, std::int64_t steps, Pace& pace) {
    std::int64_t left = steps;
    Ticks too_hard = never;
    while (!known.settled() && left > 0) {
        const Ticks most = std::min(known.upper, too_hard), little = known.lower / near_enough + 1;
        if (too_hard < known.upper && most - known.lower <= little) break;
        to_beat_ = most == never || most - known.lower <= little ? most : known.lower + (most - known.lower) / 2;
        steps_left_ = known.upper == never ? left : std::min(left, steps / tries + 1);
        const std::int64_t before = steps_left_;
        const Verdict verdict = begin(head, end) ? dive(0) : Verdict::none;
        const std::int64_t took = std::max<std::int64_t>(count_, before - steps_left_);
        left -= took;
        pace.count(64 * took);
        if (verdict == Verdict::none) known.lower = to_beat_;
        if (verdict == Verdict::found) known.upper = found_;
        if (verdict == Verdict::unknown) {
            if (to_beat_ == never) break;
            too_hard = to_beat_;
        }
    }
    return steps - left;
}

/// Tries all devices that are left; found: `found_` is what the first way that beats `to_beat_` takes.
BlockSearch::Verdict BlockSearch::dive(int depth) {
    if ((steps_left_ -= count_) < 0) return Verdict::unknown;
    if (!narrow_down()) return Verdict::none;
    const int v = next_operator();
    if (v < 0) {
        found_ = value();
        return found_ < to_beat_ ? Verdict::found : Verdict::none;
    }
    std::array<std::pair<Ticks, int>, mask_devices> choices;
    int count = 0;
    each_device(allowed_[v], [&](int d) {
        if (!is_spare(d)) choices[count++] = {head_of(v, d) + block_.work_of(v, d) + tail_of(v, d), d};
    });
    std::sort(choices.begin(), choices.begin() + count);
    before_[depth] = allowed_;
    for (int i = 0; i < count; ++i) {
        allowed_[v] = Devices{1} << choices[i].second;
        const Verdict verdict = dive(depth + 1);
        allowed_ = before_[depth];
        if (verdict != Verdict::none) return verdict;
    }
    return Verdict::none;
}

/// Leaves out what cannot be quick enough, until nothing more follows; false where nothing is left.
bool BlockSearch::narrow_down() {
    for (bool changed = true; changed;) {
        changed = false;
        if (!follow_paths(changed)) return false;
        if (has_units_ && !share_units(changed)) return false;
        if (changed) continue;
        if (!is_cheap_enough() || !look_at_devices(changed)) return false;
    }
    return to_beat_ == never || busiest_channel() < to_beat_;
}

/// What lies before and behind operators at least; devices on which a way through takes too long are left out.
bool BlockSearch::follow_paths(bool& changed) {
    for (int v = 0; v < count_; ++v)
        each_device(allowed_[v], [&](int d) {
            Ticks ready = 0;
            for (const Block::Read& read : block_.reads_of(v)) {
                Ticks soonest = never;
                if (read.from < 0) {
                    soonest = block_.crossing[block_.way(read.tensor, head_device_, d)];
                } else {
                    each_device(allowed_[read.from], [&](int s) {
                        const Ticks made = later(head_of(read.from, s), block_.work_of(read.from, s));
                        soonest = std::min(soonest, later(made, block_.crossing[block_.way(read.tensor, s, d)]));
                    });
                }
                ready = std::max(ready, soonest);
            }
            head_of(v, d) = ready;
        });
    for (int v = count_ - 1; v >= 0; --v) {
        each_device(allowed_[v], [&](int d) {
            Ticks behind = 0;
            for (std::int32_t at = reader_first_[v]; at < reader_first_[v + 1]; ++at) {
                const auto [reader, tensor] = reader_[at];
                Ticks soonest = never;
                each_device(allowed_[reader], [&](int k) {
                    const Ticks rest = later(block_.work_of(reader, k), tail_of(reader, k));
                    soonest = std::min(soonest, later(block_.crossing[block_.way(tensor, d, k)], rest));
                });
                behind = std::max(behind, soonest);
            }
            tail_of(v, d) = behind;
            if (later(later(head_of(v, d), block_.work_of(v, d)), behind) < to_beat_) return;
            allowed_[v] &= ~(Devices{1} << d);
            changed = true;
        });
        if (!allowed_[v]) return false;
    }
    return true;
}

bool BlockSearch::share_units(bool& changed) {
    for (int pass = 0; pass < 2; ++pass)
        for (int v = 0; v < count_; ++v) {
            const Devices common = allowed_[v] & allowed_[block_.unit[v]];
            changed = changed || common != allowed_[v] || common != allowed_[block_.unit[v]];
            allowed_[v] = allowed_[block_.unit[v]] = common;
            if (!common) return false;
        }
    return true;
}

bool BlockSearch::is_cheap_enough() const {
    if (to_beat_ == never) return true;
    Wide least = 0;
    for (int v = 0; v < count_; ++v) {
        Wide own = -1;
        each_device(allowed_[v], [&](int d) {
            const Wide one = static_cast<Wide>(prices_.time[d]) * block_.work_of(v, d);
            own = own < 0 ? one : std::min(own, one);
        });
        least += own;
    }
    return least <= static_cast<Wide>(to_beat_ - 1) * prices_.whole;
}

/// Operators that can be nowhere else share their device, and others must have room beside them.
bool BlockSearch::look_at_devices(bool& changed) {
    if (to_beat_ == never) return true;
    for (int d = 0; d < devices_; ++d) {
        gather(d);
        if (jobs_.empty()) continue;
        if (preemptive(jobs_) >= to_beat_) return false;
        Ticks work = 0, latest = 0, longest = 0;
        for (const Job& job : jobs_) {
            work += job.length;
            latest = std::max(latest, job.release);
            longest = std::max(longest, job.tail);
        }
        for (int v = 0; v < count_; ++v) {
            if (is_fixed(v) || !(allowed_[v] >> d & 1)) continue;
            const Job own{head_of(v, d), block_.work_of(v, d), tail_of(v, d)};
            if (std::max(latest, own.release) + work + own.length + std::max(longest, own.tail) < to_beat_) continue;
            jobs_.push_back(own);
            if (preemptive(jobs_) >= to_beat_) {
                allowed_[v] &= ~(Devices{1} << d);
                changed = true;
            }
            jobs_.pop_back();
            if (!allowed_[v]) return false;
        }
    }
    return true;
}

/// Puts all operators that are on a device for certain into `jobs_`.
void BlockSearch::gather(int d) {
    jobs_.clear();
    for (int v = 0; v < count_; ++v)
        if (allowed_[v] == Devices{1} << d) jobs_.push_back({head_of(v, d), block_.work_of(v, d), tail_of(v, d)});
}

/// What a channel takes at least for all that is sent over it for certain: the most of any.
Ticks BlockSearch::busiest_channel() {
    gather_sendings();
    Ticks most = 0;
    for (std::size_t first = 0, last = 0; first < sendings_.size(); first = last) {
        jobs_.clear();
        for (; last < sendings_.size() && sendings_[last].channel == sendings_[first].channel; ++last)
            jobs_.push_back(sendings_[last].job);
        if (jobs_.size() > 1) most = std::max(most, preemptive(jobs_));  // one alone is part of a path
    }
    return most;
}

/// Puts all that is sent for certain into `sendings_`, by channel, every tensor once to a device.
void BlockSearch::gather_sendings() {
    sendings_.clear();
    for (int v = 0; v < count_; ++v) {
        if (!is_fixed(v)) continue;
        const int d = device_of(v);
        for (const Block::Read& read : block_.reads_of(v)) {
            if (read.from >= 0 && !is_fixed(read.from)) continue;
            const int s = read.from < 0 ? head_device_ : device_of(read.from);
            const std::size_t way = block_.way(read.tensor, s, d);
            if (s == d || block_.wire[way] == 0) continue;
            const Ticks made = read.from < 0 ? 0 : head_of(read.from, s) + block_.work_of(read.from, s);
            const Ticks behind = block_.crossing[way] - block_.wire[way] + block_.work_of(v, d) + tail_of(v, d);
            sendings_.push_back({s * devices_ + d, read.tensor, {made, block_.wire[way], behind}});
        }
    }
    const auto order = [](const Sending& a, const Sending& b) {
        return std::pair(a.channel, a.tensor) < std::pair(b.channel, b.tensor);
    };
    std::stable_sort(sendings_.begin(), sendings_.end(), order);
    std::size_t kept = 0;
    for (const Sending& one : sendings_) {
        if (kept && !order(sendings_[kept - 1], one))
            sendings_[kept - 1].job.tail = std::max(sendings_[kept - 1].job.tail, one.job.tail);
        else
            sendings_[kept++] = one;
    }
    sendings_.resize(kept);
}

/// What a block takes at least when every operator has its device.
Ticks BlockSearch::value() {
    Ticks most = 0;
    Wide priced = 0;
    for (int v = 0; v < count_; ++v) {
        const int d = device_of(v);
        most = std::max(most, head_of(v, d) + block_.work_of(v, d) + tail_of(v, d));
        priced += static_cast<Wide>(prices_.time[d]) * block_.work_of(v, d);
    }
    most = std::max(most, static_cast<Ticks>((priced + prices_.whole - 1) / prices_.whole));
    for (int d = 0; d < devices_; ++d) {
        gather(d);
        most = std::max(most, preemptive(jobs_));
    }
    return std::max(most, busiest_channel());
}

/// The one with most work of those that have a choice; -1: none has.
int BlockSearch::next_operator() const {
    int best = -1;
    for (int v = 0; v < count_; ++v)
        if (!is_fixed(v) && (best < 0 || least_work_[v] > least_work_[best])) best = v;
    return best;
}

/// Whether a device is one of several that nothing tells apart so far, and not the first of them.
bool BlockSearch::is_spare(int d) const {
    Devices used = 0;
    for (int v = 0; v < count_; ++v)
        if (is_fixed(v)) used |= allowed_[v];
    if (head_device_ >= 0) used |= Devices{1} << head_device_;
    if (end_device_ >= 0) used |= Devices{1} << end_device_;
    if (used >> d & 1) return false;
    for (int k = 0; k < d; ++k)
        if (block_.like[k] == block_.like[d] && !(used >> k & 1)) return true;
    return false;
}

/// The largest finish and tail of jobs that share a machine and may be interrupted (Jackson): a bound if they may not.
Ticks BlockSearch::preemptive(std::span<const Job> jobs) {
    const auto sooner = [](const Job& a, const Job& b) { return a.release < b.release; };
    if (!std::is_sorted(jobs.begin(), jobs.end(), sooner)) {
        sorted_.assign(jobs.begin(), jobs.end());
        std::stable_sort(sorted_.begin(), sorted_.end(), sooner);
        jobs = sorted_;
    }
    open_.clear();
    Ticks now = 0, most = 0;
    for (std::size_t next = 0; next < jobs.size() || !open_.empty();) {
        if (open_.empty()) now = std::max(now, jobs[next].release);
        for (; next < jobs.size() && jobs[next].release <= now; ++next)
            open_.emplace_back(jobs[next].tail, jobs[next].length);
        const auto urgent = std::max_element(open_.begin(), open_.end());
        if (next < jobs.size() && jobs[next].release - now < urgent->second) {
            urgent->second -= jobs[next].release - now;
            now = jobs[next].release;
        } else {
            now += urgent->second;
            most = std::max(most, now + urgent->first);
            *urgent = open_.back();
            open_.pop_back();
        }
    }
    return most;
}

}  // namespace stead
