// A weight is resident once on every device that hosts a user of it: who uses which where, while things move.
#pragma once

#include <cstdint>
#include <vector>

namespace stead {

class WeightUsers {
public:
    /// Forgets everything.
    void clear(std::int64_t weights, int devices) {
        devices_ = devices;
        users_.assign(weights * devices, 0);
    }

    /// Whether d must hold weight w from now on.
    bool add(std::int32_t w, int d) { return users_[entry(w, d)]++ == 0; }

    /// Whether d need not hold weight w any more.
    bool remove(std::int32_t w, int d) { return --users_[entry(w, d)] == 0; }

    std::int32_t count(std::int32_t w, int d) const { return users_[entry(w, d)]; }

private:
    std::int64_t entry(std::int32_t w, int d) const { return std::int64_t{w} * devices_ + d; }

    int devices_ = 0;
    std::vector<std::int32_t> users_;  // [weight, device]
};

}  // namespace stead
