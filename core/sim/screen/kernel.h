// The inner loop of the screen: one block of placements through one program, with the widest instructions there are.
#pragma once

#include <cstdint>

namespace stead {

/// Which instructions the screen may use; values do not depend on it.
enum class Instructions {
    best,      // the widest that this processor has
    baseline,  // those that every processor of its kind has; for tests
};

/// Which transfers wait for each other.
enum class Channels {
    own,      // every ordered pair of devices has its own channel, or none
    crossed,  // transfers of one device use different channels or none, but other devices may use them too
    shared,   // all transfers of a device use one channel, and other devices may use it too
    mixed,    // anything else; no kernel for it
};

constexpr int most_kernel_devices = 8;
constexpr int most_kernel_lanes = 32;

/// A program for the kernels, as pointers into memory that somebody else owns. Times are in ticks of the screen, fewer
/// than 2^30 for any schedule, so that sums of two fit 32 bits.
struct ScreenPlan {
    struct Tensor {
        float amount;  // bytes, or picoseconds where tensors have times of their own
        float dither;  // in 0..1, added before truncation
    };

    std::int32_t operators;
    const std::int32_t* order;           // [position]
    const std::int32_t* duration;        // [position, device], or [position] if uniform; negative = cannot run there
    const std::int32_t* slot;            // [operator]; where its ready times are kept until it runs
    const std::int32_t* tensor_first;    // as in Problem, like the next two
    const std::int32_t* consumer_first;
    const std::int32_t* consumer;
    const Tensor* tensor;                // [tensor]
    // Links, [target, source], or one entry if uniform; padded to a multiple of 8 entries
    const float* rate;                   // ticks per amount
    const float* latency;                // -2^31 = unreachable
    const float* gap;                    // -2^31 = transfers never queue
    const std::int32_t* channel;         // crossed: [target, source]; shared: [source]
};

/// A compiled inner loop. `run` takes the devices of all operators in all lanes (lane r of operator v is byte
/// v * lanes + r % (lanes / 4) * 4 + r / (lanes / 4)) and memory of devices * (devices + 1) + slots rows with one int32
/// per lane, zero at first; both aligned to 64 bytes. It gives the makespans, negative where a placement cannot run.
struct ScreenKernel {
    using Run = void(const ScreenPlan& plan, const void* devices, void* memory, std::int32_t* ends);
    int lanes;
    Run* run;
};

/// The kernel for 2, 4 or 8 devices. Uniform: all devices and all links are alike and usable, and channels not crossed.
ScreenKernel find_kernel(int devices, Channels channels, bool uniform, Instructions instructions);

}  // namespace stead
