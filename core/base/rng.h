// Random numbers that are the same on every machine: xoshiro256** (Blackman and Vigna 2021), seeded by splitmix64.
#pragma once

#include <bit>
#include <cstdint>

namespace stead {

/// A stream of random numbers; a work item that owns one does not depend on the thread it runs on.
class Rng {
public:
    /// Streams of one seed are independent of each other.
    explicit Rng(std::uint64_t seed, std::uint64_t stream = 0) {
        std::uint64_t mixer = seed;
        mixer = splitmix(mixer) + stream;
        for (std::uint64_t& word : state_) word = splitmix(mixer);
    }

    std::uint64_t next() {
        const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
        const std::uint64_t shifted = state_[1] << 17;
        state_[2] ^= state_[0];
        state_[3] ^= state_[1];
        state_[1] ^= state_[2];
        state_[0] ^= state_[3];
        state_[2] ^= shifted;
        state_[3] = std::rotl(state_[3], 45);
        return result;
    }

    /// A number below `count`, which is at least 1; the bias of less than count / 2^32 does not matter to a search.
    std::uint32_t below(std::uint32_t count) { return static_cast<std::uint32_t>((next() >> 32) * count >> 32); }

    /// An exponentially distributed number with mean 1, to about 1e-5: by series, since logarithms of the standard
    /// library differ between machines in the last digit.
    double exponential() {
        const std::uint64_t bits = next() | 1;
        const int zeros = std::countl_zero(bits);
        const double mantissa = static_cast<double>(bits << zeros >> 11) * 0x1p-52;  // in [1, 2)
        const double z = (mantissa - 1) / (mantissa + 1), z2 = z * z;
        const double log_mantissa = 2 * z * (1 + z2 * (1.0 / 3 + z2 * (1.0 / 5 + z2 * (1.0 / 7 + z2 / 9))));
        return (zeros + 1) * 0.6931471805599453 - log_mantissa;
    }

private:
    static std::uint64_t splitmix(std::uint64_t& state) {
        std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }

    std::uint64_t state_[4];
};

}  // namespace stead
