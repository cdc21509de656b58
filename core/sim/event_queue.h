// The event queue: a binary min-heap of keys (time, index) packed into one integer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/problem.h"

namespace stead {

/// Holds every (time, index) when 64 bits do not.
__extension__ typedef __int128 WideWord;

/// Packs (time, index) into one integer that sorts like the pair.
template <class Word>
class TimeKeys {
public:
    explicit TimeKeys(const Problem& problem) : bits_(sizeof(Word) > sizeof(Ticks) ? 64 : problem.index_bits) {}
    Word pack(Ticks time, std::int32_t index) const { return (static_cast<Word>(time) << bits_) | index; }
    Ticks time(Word key) const { return static_cast<Ticks>(key >> bits_); }
    std::int32_t index(Word key) const { return static_cast<std::int32_t>(key & ((Word{1} << bits_) - 1)); }

private:
    int bits_;
};

/// Binary heap in borrowed storage. Sifting moves a hole instead of swapping, and a sentinel behind the last key
/// stands for a missing right child; either makes it about twice as fast as std::push_heap and std::pop_heap.
template <class Word>
class MinHeap {
public:
    static constexpr Word sentinel = ~(Word{1} << (8 * sizeof(Word) - 1));  // larger than every key
    static constexpr std::size_t slots(std::size_t capacity) { return capacity + 2; }

    /// `storage` has slots(capacity) words.
    explicit MinHeap(Word* storage) : keys_(storage) { keys_[1] = sentinel; }

    bool empty() const { return size_ == 0; }
    /// The smallest key; the sentinel when empty.
    Word top() const { return keys_[1]; }

    void push(Word key) {
        std::size_t hole = ++size_;
        keys_[hole + 1] = sentinel;
        while (hole > 1 && key < keys_[hole / 2]) {
            keys_[hole] = keys_[hole / 2];
            hole /= 2;
        }
        keys_[hole] = key;
    }

    void pop() { replace_top_if(false, sentinel); }

    /// Puts `key` in place of the smallest one if `replace`, otherwise removes that. Which of the two happens is decided
    /// without a branch: in a simulation nobody can predict it.
    void replace_top_if(bool replace, Word key) {
        const Word last = keys_[size_];
        keys_[size_] = replace ? last : sentinel;
        size_ -= !replace;
        if (size_ != 0) sift_down(replace ? key : last);
    }

private:
    /// Fills the hole on top with `key`.
    void sift_down(Word key) {
        std::size_t hole = 1;
        for (std::size_t child = 2; child <= size_; child *= 2) {
            child += keys_[child + 1] < keys_[child];
            if (key <= keys_[child]) break;
            keys_[hole] = keys_[child];
            hole = child;
        }
        keys_[hole] = key;
    }

    Word* keys_;  // 1 .. size_; slot 0 is unused so that siblings share a cache line
    std::size_t size_ = 0;
};

}  // namespace stead
