// The schedule of (devices, order) under policy program_order, kept so that a change costs little to judge.
//
// For a fixed order the schedule is a system of maxima and sums, so two things suffice to judge a change between two
// positions: when every device, channel and tensor is free or there before the first (the head, by a pass forward), and
// how long it takes from there to the end behind the last (the tail, by a pass backward; as for job shops, Taillard
// 1994).
// Only what lies between them is decoded again, and the makespan that results is exact.
//
// Which of the waiting tensors a channel sends first is part of the state; both ways of `Sends` are decoded.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/problem.h"
#include "base/rows.h"
#include "search/sends.h"
#include "sim/sending.h"

namespace stead {

/// What decoders of one problem share.
struct DecodeTables {
    explicit DecodeTables(const Problem& problem);

    Rows reads;                 // [operator]; tensors
    std::vector<Ticks> behind;  // [operator]; least ticks from its finish to the end, wherever all run
    std::int32_t step;          // positions between two checkpoints
};

/// A schedule, and trial changes to it. Positions are places in the order.
///
/// Changes are staged by `place` and `arrange`, judged by `evaluate`, and then kept or dropped. All staged changes lie
/// before the end of the open window; the window bounds what has to be done when a change is kept.
class Decoder {
public:
    Decoder(const Problem& problem, const DecodeTables& tables);

    /// Takes over a state; opens the window of all positions. Placement and order have been checked.
    void load(const DeviceIndex* placement, const std::int32_t* order, Sends sends);
    /// Restricts changes to positions before `last` and speeds up those from `first` on. Rounded to checkpoints.
    void open(std::int32_t first, std::int32_t last);

    std::int32_t first() const { return first_; }
    std::int32_t last() const { return last_; }
    Ticks makespan() const { return makespan_; }
    Sends sends() const { return sends_; }
    const std::vector<DeviceIndex>& placement() const { return device_; }
    const std::vector<std::int32_t>& order() const { return order_; }
    int device(std::int32_t v) const { return device_[v]; }
    std::int32_t position(std::int32_t v) const { return position_[v]; }
    Ticks start(std::int32_t v) const { return finish_[v] - duration(v, device_[v]); }
    Ticks finish(std::int32_t v) const { return finish_[v]; }
    /// When tensor `t` is on device `d`; only for devices where it is read.
    Ticks arrival(std::int32_t t, int d) const { return at_[std::int64_t{t} * devices_ + d]; }
    /// Ticks from the start of `v` to the end, for operators in the window.
    Ticks tail(std::int32_t v) const { return tail_[v]; }
    /// Operators of the window on a longest path, by position.
    const std::vector<std::int32_t>& critical() const { return critical_; }
    /// Operators decoded so far, forward or backward: the measure of work.
    std::int64_t decoded() const { return decoded_; }

    /// Stages operator `v` on device `d`.
    void place(std::int32_t v, int d);
    /// Stages other operators at positions `begin`, `begin` + 1, ...: a permutation of those that stand there.
    void arrange(std::int32_t begin, std::span<const std::int32_t> operators);
    /// The makespan with what is staged; `never` if it is above `threshold` or a tensor cannot get to a reader.
    ///
    /// With `patience` it gives up early, and now and then in vain: as soon as an operator that was not moved ends so
    /// late that it would exceed the threshold by more than that if all behind it took as long as before.
    Ticks evaluate(Ticks threshold, Ticks patience = never);
    /// Makes what was staged and evaluated part of the schedule.
    void keep();
    /// Forgets what was staged.
    void drop();

private:
    struct Undo {
        std::int64_t index;
        Ticks old;
    };
    struct Frontier {  // a tensor that is read or sent behind the window
        std::int64_t index;
        Ticks beyond;  // from its arrival to the end
    };
    struct Booking {  // of a send by reader
        std::int32_t position;  // of the reader; `operators_` where nothing is sent
        std::uint32_t pass;     // in which it was decoded
    };
    struct UndoBooking {
        std::int64_t index;
        Booking old;
    };

    Ticks duration(std::int32_t v, int d) const { return view_.duration(v, d); }
    std::int32_t checkpoint_at(std::int32_t position) const { return (position + step_ - 1) / step_; }
    Ticks* head(std::int32_t checkpoint) { return &heads_[checkpoint * width_]; }
    Ticks* tails(std::int32_t checkpoint) { return &tails_[checkpoint * width_]; }

    /// trial_behind: where old values do not hold, so that all counts as changed.
    enum class Pass { settle, trial, trial_behind };

    template <Pass kPass>
    bool run(std::int32_t begin, std::int32_t end, Ticks cut) {
        if (problem_.carries) return run_by_producer<kPass, true>(begin, end, cut);
        return sends_ == Sends::by_producer ? run_by_producer<kPass, false>(begin, end, cut)
                                            : run_by_reader<kPass>(begin, end, cut);
    }
    template <Pass kPass, bool kCarries>
    bool run_by_producer(std::int32_t begin, std::int32_t end, Ticks cut);
    template <Pass kPass>
    bool run_by_reader(std::int32_t begin, std::int32_t end, Ticks cut);
    bool is_hopeless(Ticks cut);
    Ticks free_at(int d, std::int32_t at);
    Ticks tail_behind(int d, std::int32_t at);
    Ticks earliest_arrival(std::int32_t t, int d, std::int32_t at, Ticks finish);
    bool try_changes(Ticks threshold, Ticks patience);
    template <Pass kPass>
    void note(std::vector<Ticks>& values, std::vector<Undo>& log, std::int64_t index, Ticks value);
    void advance(std::int32_t begin, std::int32_t end);
    void retreat(std::int32_t end, std::int32_t begin);
    template <bool kCarries>
    void retreat_by_producer(std::int32_t v, Ticks* frontier);
    void retreat_by_reader(std::int32_t v, Ticks* frontier);
    Ticks tail_of_send(std::int32_t t, const Link& way, Ticks behind, Ticks* frontier) const;
    void find_range();
    void find_sends_changed(std::int32_t v);
    bool sends_differ(std::int32_t t) const;
    void find_bookings_changed(std::int32_t v);
    void begin_pass(std::int32_t position);
    bool is_booked(std::int64_t index) const;
    void forget_bookings();
    Ticks longest_behind(std::int32_t t, int d, std::int32_t position) const;
    Ticks over_resources(std::int32_t checkpoint);
    Ticks over_changed_tensors(std::int32_t position) const;
    Ticks over_frontier() const;
    bool still_critical(std::int32_t checkpoint) const;
    void find_frontier();
    void certify();
    void find_crossings(std::int32_t v, std::int32_t& open);
    void cross(std::int64_t index, std::int32_t behind, std::int32_t up_to, std::int32_t& open);
    void undo();
    void forget();

    const Problem& problem_;
    const DecodeTables& tables_;
    const View<0> view_;
    const std::int32_t operators_;
    const std::int64_t devices_;
    const std::int32_t step_;
    const std::int64_t width_;  // devices and channels

    std::vector<DeviceIndex> device_;    // [operator]; with what is staged
    std::vector<DeviceIndex> settled_;   // [operator]; without
    std::vector<std::int32_t> order_;     // [position]
    std::vector<std::int32_t> position_;  // [operator]
    std::vector<Ticks> finish_;           // [operator]; valid before heads_valid_
    std::vector<Ticks> at_;               // [tensor, device]
    Sends sends_ = Sends::by_producer;
    std::vector<Ticks> tail_;             // [operator]; valid from tails_valid_ on
    std::vector<Ticks> heads_;            // [checkpoint, device or channel]; when each is free
    std::vector<Ticks> tails_;            // [checkpoint, device or channel]; from its next use to the end
    std::vector<Ticks> longest_finish_;   // [checkpoint]; of operators before it
    std::vector<Ticks> now_;              // [device or channel]; when each is free, while decoding
    Ticks now_longest_ = 0;               // the latest finish, while decoding
    std::vector<Ticks> after_;            // [operator]; from its finish to the end as it was, valid as tail_ is
    const Ticks* rest_ = nullptr;         // [operator]; what a trial counts from a finish to the end
    std::int32_t heads_valid_ = 0;
    std::int32_t tails_valid_ = 0;
    std::int32_t first_ = 0, last_ = 0;  // the window
    Ticks makespan_ = 0;
    std::int64_t decoded_ = 0;

    // Sends by reader.
    std::vector<Booking> booked_;   // [tensor, device]
    std::vector<Ticks> send_tail_;  // [tensor, device]; from the begin of a send to the end, valid as tail_ is
    std::uint32_t pass_ = 0;        // of decoding
    std::int32_t pass_begin_ = 0;   // bookings before it hold

    // The window: what is critical, and where longest paths cross its checkpoints.
    std::vector<std::int32_t> critical_;
    std::vector<std::int64_t> crossing_;  // [checkpoint]; entry of at_ on a longest path, or unknown
    std::vector<Frontier> frontier_;

    // What is staged.
    std::vector<std::int32_t> placed_;                             // operators
    std::vector<std::pair<std::int32_t, std::int32_t>> arranged_;  // (position, operator that stood there)
    std::int32_t change_begin_ = 0, change_end_ = 0;               // positions
    std::int32_t run_begin_ = 0, run_end_ = 0;                     // the same, rounded to checkpoints
    std::vector<Undo> at_log_, finish_log_;
    std::vector<UndoBooking> booked_log_;
    std::vector<std::pair<std::int32_t, Ticks>> outlook_;  // (operator that moves, its earliest finish)
};

}  // namespace stead
