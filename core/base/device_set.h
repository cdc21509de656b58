// Sets of devices as bits: one word where that suffices, as many as the largest cluster needs otherwise.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "base/problem.h"

namespace stead {

/// A set of devices below 64 * kWords. With one word it compiles to the masks that one would write by hand.
template <int kWords>
class DeviceSet {
public:
    bool has(int d) const { return word(d) >> place(d) & 1; }
    void add(int d) { word(d) |= std::uint64_t{1} << place(d); }
    void remove(int d) { word(d) &= ~(std::uint64_t{1} << place(d)); }
    bool empty() const {
        return std::all_of(words_.begin(), words_.end(), [](std::uint64_t one) { return one == 0; });
    }

    /// Calls visit(d) for each device of both sets as they are now, in increasing order.
    template <class Visit>
    void for_each_common(const DeviceSet& other, Visit visit) const {
        for (int i = 0; i < kWords; ++i)
            for (std::uint64_t left = words_[i] & other.words_[i]; left != 0; left &= left - 1)
                visit(64 * i + std::countr_zero(left));
    }
    template <class Visit>
    void for_each(Visit visit) const {
        for_each_common(*this, visit);
    }

    static DeviceSet all() {
        DeviceSet set;
        set.words_.fill(~std::uint64_t{0});
        return set;
    }

private:
    static int place(int d) { return kWords == 1 ? d : d % 64; }  // one word: no instruction for a remainder
    std::uint64_t& word(int d) { return words_[kWords == 1 ? 0 : d / 64]; }
    std::uint64_t word(int d) const { return words_[kWords == 1 ? 0 : d / 64]; }

    std::array<std::uint64_t, kWords> words_{};
};

using FewDevices = DeviceSet<1>;
using ManyDevices = DeviceSet<max_devices / 64>;

/// Calls use(set) with an empty set that holds the devices of `problem`: code for few devices stays as quick as if there
/// were no others.
template <class Use>
[[gnu::always_inline]] inline auto with_device_set(const Problem& problem, Use use) {
    return problem.devices <= mask_devices ? use(FewDevices()) : use(ManyDevices());
}

}  // namespace stead
