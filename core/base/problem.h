// The immutable problem that every native function reads: a graph of operators and tensors, and devices with links.
//
// Letters used throughout the core: v operator, t tensor, w weight, s source device, d or k device, h channel.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ticks.h"

namespace stead {

/// A device in a placement.
using DeviceIndex = std::uint16_t;

inline constexpr int max_devices = 1024;
inline constexpr int mask_devices = 64;  // that fit the bits of one word: as many as constructions and searches take

/// What a caller hands in. Nothing is owned; matrices are row by row.
struct ProblemArrays {
    std::int64_t operators = 0;
    std::int64_t devices = 0;
    std::span<const double> seconds;                // [operator, column]; inf = cannot run there
    std::span<const std::int64_t> workspace_bytes;  // [operator, column]
    std::span<const DeviceIndex> column;            // [device]; empty: each device has its own
    std::span<const std::int32_t> tensor_first;     // [operator + 1]
    std::span<const std::int64_t> tensor_bytes;     // [tensor]
    std::span<const std::uint8_t> tensor_kept;      // [tensor]
    std::span<const std::int32_t> consumer_first;   // [tensor + 1]
    std::span<const std::int32_t> consumer;
    std::span<const std::int64_t> weight_bytes;       // [weight]
    std::span<const std::int32_t> weight_user_first;  // [weight + 1]
    std::span<const std::int32_t> weight_user;
    std::span<const double> latency_seconds;        // [device, device]; inf = unreachable; diagonal ignored
    std::span<const double> bytes_per_second;       // [device, device]
    std::span<const double> gap_seconds;            // [device, device]
    std::span<const std::int32_t> channel;          // [device, device]; -1 = none, -2 = carried by the sender
    std::span<const std::int64_t> memory_bytes;     // [device]
    std::span<const double> tensor_seconds;         // [tensor], or empty: times come from bytes
    std::span<const std::int32_t> hops;             // [device, device]; multiplies tensor_seconds
    std::span<const std::uint8_t> phase;            // [operator]; 0 forward, 1 backward, 2 update
    std::span<const std::uint8_t> host;             // [device]; 1 = computes in host memory
    int routing = 0;                                // 0 direct links, 1 everything passes host memory
    std::span<const double> host_latency_seconds;   // [2, device]; 0 write to, 1 read from host memory
    std::span<const double> host_bytes_per_second;  // [2, device]
};

// What stands for a channel where there is none.
inline constexpr std::int32_t no_channel = -1;  // transfers never queue
inline constexpr std::int32_t by_sender = -2;   // the sending device carries tensors itself and does nothing else meanwhile

/// One way between two places; latency is `impossible` where there is none.
struct Link {
    double ps_per_byte = 0.0;
    Ticks latency = impossible;
    Ticks gap = 0;
    std::int32_t channel = no_channel;  // dense index, or `no_channel` or `by_sender`
    std::int32_t hops = 1;      // used only when tensors have times of their own
};

/// Checked once when built, never changed afterwards; safe to share between threads.
struct Problem {
    explicit Problem(const ProblemArrays& given);

    std::int32_t operators = 0;
    std::int32_t devices = 0;
    std::int32_t columns = 0;  // of durations and workspaces
    std::int32_t tensors = 0;
    std::int32_t weights = 0;
    std::int32_t channels = 0;

    // Operators. The index is the topological rank and breaks ties.
    // Equal devices share a column; up to `mask_devices` devices each has its own, and column d is device d's.
    std::vector<Ticks> duration;                // [operator, column]; `impossible` where it cannot run
    std::vector<std::int64_t> workspace_bytes;  // [operator, column]
    std::vector<DeviceIndex> column;            // [device]
    std::vector<std::int32_t> tensor_first;  // [operator + 1]; outputs of v: tensor_first[v] .. tensor_first[v + 1] - 1
    std::vector<std::int32_t> inputs;        // [operator]; number of tensors read
    std::vector<std::int32_t> sources;       // operators without inputs, increasing
    std::vector<std::uint8_t> phase;         // [operator]
    std::vector<std::int64_t> output_bytes;  // [operator]; sum over outputs
    std::vector<std::int64_t> input_bytes;   // [operator]; sum over tensors read

    // Tensors.
    std::vector<std::int64_t> tensor_bytes;    // [tensor]
    std::vector<std::uint8_t> tensor_kept;     // [tensor]
    std::vector<Ticks> tensor_ticks;           // [tensor], or empty: transfer times come from bytes
    std::vector<std::int32_t> producer;        // [tensor]
    std::vector<std::int32_t> consumer_first;  // [tensor + 1]
    std::vector<std::int32_t> consumer;        // readers of each tensor, strictly increasing

    // Weights: resident once on every device that hosts a user.
    std::vector<std::int64_t> weight_bytes;       // [weight]
    std::vector<std::int32_t> weight_user_first;  // [weight + 1]
    std::vector<std::int32_t> weight_user;

    // Devices.
    std::vector<Link> links;                  // [source, target]; the diagonal is never used
    std::vector<std::int32_t> channel_names;  // [channel]; the caller's number of each dense channel, increasing
    std::vector<std::int64_t> memory_bytes;   // [device]
    std::vector<std::uint8_t> host;           // [device]
    std::vector<Link> host_write;             // [device]; to host memory; free for host devices
    std::vector<Link> host_read;              // [device]; from host memory
    bool routed_by_host = false;

    // Derived once.
    Ticks horizon = 0;        // no schedule of any placement lasts longer
    int index_bits = 1;       // bits that hold any operator, channel or device index
    bool packed_keys = true;  // (time, index) always fits one 64-bit key
    bool single_sender_channels = true;
    bool carries = false;             // some devices carry tensors themselves
    bool runs_everywhere = true;      // no `impossible` duration
    bool all_reachable = true;        // no `impossible` latency between two devices
    bool memory_is_ample = true;      // no placement can exceed any capacity
    std::int64_t most_transfers = 0;  // no placement needs more

    /// Where operator v on device d stands in `duration` and `workspace_bytes`.
    std::int64_t cell(std::int32_t v, int d) const { return std::int64_t{v} * columns + column[d]; }
    const Link& link(int source, int target) const { return links[source * devices + target]; }
    bool timed_by_tensor() const { return !tensor_ticks.empty(); }

    /// How long tensor `t` occupies `way`, without latency.
    Ticks wire(std::int32_t t, const Link& way) const {
        return timed_by_tensor() ? way.hops * tensor_ticks[t]
                                 : std::llrint(static_cast<double>(tensor_bytes[t]) * way.ps_per_byte);
    }

private:
    void take_graph(const ProblemArrays& given);
    void take_devices(const ProblemArrays& given);
    void derive();
};

}  // namespace stead
