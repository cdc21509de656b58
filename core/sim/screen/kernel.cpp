#include "sim/screen/kernel.h"

#include <algorithm>
#include <bit>
#include <cstring>

#define STEAD_INLINE [[gnu::always_inline]] inline
#if defined(__clang__)
#define STEAD_UNROLL _Pragma("unroll")
#else
#define STEAD_UNROLL _Pragma("GCC unroll 16")
#endif

static_assert(std::endian::native == std::endian::little, "lanes are bytes of words");

namespace stead {
namespace {

namespace baseline {
constexpr int width = 4;
#include "sim/screen/kernel.inc"
}  // namespace baseline

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
namespace avx2 {
constexpr int width = 8;
#include "sim/screen/kernel.inc"
}  // namespace avx2
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

}  // namespace

ScreenKernel find_kernel(int devices, Channels channels, bool uniform, [[maybe_unused]] Instructions instructions) {
#if defined(__x86_64__)
    if (instructions == Instructions::best && __builtin_cpu_supports("avx2"))
        return avx2::find_kernel(devices, channels, uniform);
#endif
    return baseline::find_kernel(devices, channels, uniform);
}

}  // namespace stead
