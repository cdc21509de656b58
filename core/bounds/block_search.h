// What a block of operators between two others takes at least: branch and bound over the devices of its operators.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/ticks.h"
#include "base/watch.h"
#include "bounds/heads_and_tails.h"

namespace stead {

/// Operators that all wait for a `head` and that an `end`, the last of them, waits for, in topological order.
///
/// A block at the beginning has no head, and one at the end has no end. What else its operators wait for is left out.
struct Block {
    struct Read {
        std::int32_t from;    // place in the block of the operator that is waited for; -1: the head
        std::int32_t tensor;  // row of `crossing`
        bool operator==(const Read&) const = default;
    };

    int size() const { return static_cast<int>(unit.size()); }
    Ticks work_of(int v, int d) const { return work[static_cast<std::size_t>(v) * devices + d]; }
    std::size_t way(std::int32_t tensor, int s, int d) const {
        return (static_cast<std::size_t>(tensor) * devices + s) * devices + d;
    }
    std::span<const Read> reads_of(int v) const {
        return {reads.data() + read_first[v], reads.data() + read_first[v + 1]};
    }

    int devices = 0;
    bool has_head = false, has_end = false;
    std::vector<Ticks> work;               // [operator, device]; `never` where it cannot run
    std::vector<std::int32_t> read_first;  // [operator + 1]
    std::vector<Read> reads;
    std::vector<Ticks> crossing;     // [tensor, source, target]; 0 on the diagonal, `never` without a way
    std::vector<Ticks> wire;         // [tensor, source, target]; of that, what the channel of these two is busy
    std::vector<std::int32_t> unit;  // [operator]; the first operator of the block that must share its device
    std::int32_t head_unit = -1;     // the first operator that must share the head's device
    std::vector<int> like;           // [device]; devices of equal numbers can change places

    bool operator==(const Block&) const = default;
};

/// What a block takes at least, and what a way to place it takes by the same count.
struct Span {
    Ticks lower = 0;
    Ticks upper = never;
    bool settled() const { return lower >= upper; }
};

/// Searches one block, whose head and end are on given devices; -1 stands for no head or no end.
///
/// For given devices of all operators a block takes at least
///   1. its longest path, with crossings;
///   2. on each device, what a preemptive schedule of its operators takes, each between what lies before and behind it;
///   3. on each channel between two devices, the same for what is sent over it;
///   4. its work, spread over all devices.
/// The least of that over all devices bounds every run: queues, other operators and memory only delay. Choices are
/// given up as soon as they take no less than what is to be beaten, with all that follows from that for others.
class BlockSearch {
public:
    explicit BlockSearch(const Block& block);

    /// The longest path, each operator on its best device.
    Ticks longest_path(int head, int end);

    /// Narrows what is known, looking at about so many operators; returns how many it looked at.
    std::int64_t narrow(int head, int end, Span& known, std::int64_t steps, Pace& pace);

private:
    using Devices = std::uint64_t;  // a bit for each
    enum class Verdict { none, found, unknown };
    struct Job {
        Ticks release, length, tail;
    };
    struct Sending {
        int channel;
        std::int32_t tensor;
        Job job;
    };

    bool begin(int head, int end);
    Verdict dive(int depth);
    bool narrow_down();
    bool follow_paths(bool& changed);
    bool share_units(bool& changed);
    bool look_at_devices(bool& changed);
    Ticks busiest_channel();
    bool is_cheap_enough() const;
    Ticks value();
    int next_operator() const;
    bool is_spare(int d) const;
    Ticks preemptive(std::span<const Job> jobs);
    void gather(int d);
    void gather_sendings();

    Ticks& head_of(int v, int d) { return head_[static_cast<std::size_t>(v) * devices_ + d]; }
    Ticks& tail_of(int v, int d) { return tail_[static_cast<std::size_t>(v) * devices_ + d]; }
    bool is_fixed(int v) const { return (allowed_[v] & (allowed_[v] - 1)) == 0; }
    int device_of(int v) const { return std::countr_zero(allowed_[v]); }

    const Block& block_;
    const int devices_, count_;
    bool has_units_ = false;
    std::vector<std::int32_t> reader_first_;                     // [operator + 1]
    std::vector<std::pair<std::int32_t, std::int32_t>> reader_;  // who reads what an operator makes, and which tensor
    std::vector<Ticks> least_work_;                              // [operator]
    Prices prices_;

    int head_device_ = -1, end_device_ = -1;
    Ticks to_beat_ = never, found_ = never;
    std::int64_t steps_left_ = 0;
    std::vector<Devices> allowed_;              // [operator]; devices that are left
    std::vector<std::vector<Devices>> before_;  // [depth]; what was left there
    std::vector<Ticks> head_, tail_;            // [operator, device]; before its start, from its finish to the end
    std::vector<Job> jobs_, sorted_;
    std::vector<Sending> sendings_;
    std::vector<std::pair<Ticks, Ticks>> open_;  // of a preemptive schedule: tail, what is left
};

}  // namespace stead
