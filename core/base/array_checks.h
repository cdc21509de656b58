// Checks of given arrays. Each throws std::invalid_argument that names the array, the entry and what is wrong with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/fail.h"

namespace stead {

template <class T>
std::vector<T> copy(std::span<const T> from) {
    return {from.begin(), from.end()};
}

inline void check_size(const char* name, std::size_t given, std::size_t wanted) {
    if (given != wanted) fail(name, " needs ", wanted, " entries, got ", given);
}

template <class T>
void check_not_negative(const char* name, std::span<const T> values) {
    for (std::size_t i = 0; i < values.size(); ++i)
        if (!(values[i] >= 0)) fail(name, " must be at least 0, but entry ", i, " is ", +values[i]);  // also NaN
}

inline void check_at_most(const char* name, std::span<const std::uint8_t> values, int largest) {
    for (std::size_t i = 0; i < values.size(); ++i)
        if (values[i] > largest) fail(name, " must lie in 0..", largest, ", but entry ", i, " is ", +values[i]);
}

/// `first` cuts `count` items into consecutive runs.
template <class Index>
void check_runs(const char* name, std::span<const Index> first, std::size_t count) {
    if (first.front() != 0) fail(name, " must begin with 0, got ", first.front());
    for (std::size_t i = 0; i + 1 < first.size(); ++i)
        if (first[i + 1] < first[i])
            fail(name, " must not fall, but entry ", i + 1, " is ", first[i + 1], " after ", first[i]);
    if (static_cast<std::size_t>(first.back()) != count)
        fail(name, " must end with the number of items, ", count, ", got ", first.back());
}

/// Every run lists things called `what` out of 0..count - 1, strictly increasing; those of run i lie above `above(i)`.
template <class Index, class Above>
void check_increasing(const char* name, std::span<const Index> first, std::span<const std::int32_t> items,
                      const char* what, std::int64_t count, Above above) {
    for (std::size_t run = 0; run + 1 < first.size(); ++run) {
        std::int64_t previous = above(run);
        for (Index i = first[run]; i < first[run + 1]; ++i) {
            if (items[i] < 0 || items[i] >= count)
                fail(name, ": entry ", i, " is ", what, " ", items[i], ", but ", what, "s are 0..", count - 1);
            if (items[i] <= previous)
                fail(name, ": entry ", i, " of item ", run, " is ", what, " ", items[i], ", which must come after ",
                     what, " ", previous);
            previous = items[i];
        }
    }
}

}  // namespace stead
