// The ideals met so far, each with the costs of the chains that end with it.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "stages/frontier.h"

namespace stead {

/// A set of nodes as bits, with a hash that follows each change.
class NodeSet {
public:
    explicit NodeSet(std::int32_t nodes) : words_((nodes + 63) / 64, 0), names_(nodes) {
        std::uint64_t state = 0;
        for (std::uint64_t& name : names_) name = mix(state += 0x9e3779b97f4a7c15u);
    }

    void flip(std::int32_t v) {
        words_[v / 64] ^= std::uint64_t{1} << v % 64;
        hash_ ^= names_[v];
    }
    void assign(const std::uint64_t* words, std::uint64_t hash) {
        std::copy_n(words, words_.size(), words_.begin());
        hash_ = hash;
    }
    bool has(std::int32_t v) const { return words_[v / 64] >> v % 64 & 1; }
    std::span<const std::uint64_t> words() const { return words_; }
    std::uint64_t hash() const { return hash_; }

private:
    static std::uint64_t mix(std::uint64_t z) {  // splitmix64
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        return z ^ z >> 31;
    }

    std::vector<std::uint64_t> words_;
    std::vector<std::uint64_t> names_;  // [node]; random bits
    std::uint64_t hash_ = 0;
};

/// Ideals are kept in shards by hash, each with a lock, so that threads seldom meet; they never move once stored.
template <class Costs>
class IdealTable {
public:
    /// One stored ideal.
    struct Entry {
        std::uint64_t* words = nullptr;  // the hash is in front of them
        Costs* costs = nullptr;          // [state]

        std::uint64_t hash() const { return words[-1]; }
    };

    /// Only a table that is `shared` may be added to by several threads at a time.
    IdealTable(std::int32_t nodes, std::int64_t states, std::int64_t max_bytes, bool shared)
        : words_((nodes + 63) / 64), states_(states), max_bytes_(max_bytes), shared_(shared), shards_(shard_count) {
        const std::int64_t entry_bytes = 8 * (words_ + 2) + states_ * std::int64_t{sizeof(Costs)};  // and its index
        block_bits_ = std::bit_width(std::max<std::uint64_t>(1, block_bytes / entry_bytes)) - 1;
        block_bytes_ = entry_bytes << block_bits_;
        for (Shard& shard : shards_) shard.by_size.resize(nodes + 1);
    }

    /// Takes in chains that end with `set` of `size` nodes; false when that takes more memory than allowed.
    bool add(const NodeSet& set, std::int32_t size, std::span<const Arrival> arrivals) {
        Shard& shard = shard_of(set.hash());
        std::unique_lock lock(shard.mutex, std::defer_lock);
        if (shared_) lock.lock();
        const Entry entry = find_or_add(shard, set, size);
        if (entry.costs == nullptr) return false;
        std::int64_t grown = 0;
        for (const Arrival& arrival : arrivals) grown += entry.costs[arrival.state].add(arrival.cost);
        return grown == 0 || allow(grown);
    }

    /// The costs of chains that end with `set`, or nullptr. Not while others add.
    const Costs* find(const NodeSet& set) const {
        const Shard& shard = shard_of(set.hash());
        if (shard.slots.empty()) return nullptr;
        const Slot slot = shard.slots[slot_of(shard, set)];
        return slot.number == 0 ? nullptr : entry(shard, slot.number - 1).costs;
    }

    /// All ideals of so many nodes, in an order that depends on nothing but their nodes.
    std::vector<Entry> of_size(std::int32_t size) const {
        std::vector<Entry> entries;
        for (const Shard& shard : shards_)
            for (const std::uint32_t index : shard.by_size[size]) entries.push_back(entry(shard, index));
        std::ranges::sort(entries, [&](const Entry& a, const Entry& b) {
            return std::lexicographical_compare(a.words, a.words + words_, b.words, b.words + words_);
        });
        return entries;
    }

    std::int64_t count() const {
        std::int64_t sum = 0;
        for (const Shard& shard : shards_) sum += shard.count;
        return sum;
    }
    std::int64_t bytes() const { return bytes_; }

private:
    static constexpr std::size_t shard_count = 16;
    static constexpr std::uint64_t block_bytes = 1 << 15;

    struct Block {
        std::unique_ptr<std::uint64_t[]> keys;
        std::unique_ptr<Costs[]> costs;
    };
    struct Slot {
        std::uint32_t number = 0;  // 1 + index of an entry, or 0
        std::uint32_t tag = 0;     // bits of its hash: few other entries need be looked at
    };
    struct alignas(64) Shard {
        std::mutex mutex;
        std::vector<Slot> slots;  // at most half of them are taken
        std::vector<Block> blocks;
        std::vector<std::vector<std::uint32_t>> by_size;
        std::uint32_t count = 0;
    };

    static std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }
    Shard& shard_of(std::uint64_t hash) { return shards_[hash >> 60]; }
    const Shard& shard_of(std::uint64_t hash) const { return shards_[hash >> 60]; }

    Entry entry(const Shard& shard, std::uint32_t index) const {
        const Block& block = shard.blocks[index >> block_bits_];
        const std::int64_t place = index & ((std::uint32_t{1} << block_bits_) - 1);
        return {&block.keys[place * (words_ + 1)] + 1, &block.costs[place * states_]};
    }

    /// Sets are small: a call to compare memory would take longer.
    bool same_words(const std::uint64_t* a, std::span<const std::uint64_t> b) const {
        std::uint64_t difference = 0;
        for (std::int64_t i = 0; i < words_; ++i) difference |= a[i] ^ b[i];
        return difference == 0;
    }

    /// The slot that holds `set`, or the empty one where it belongs.
    std::size_t slot_of(const Shard& shard, const NodeSet& set) const {
        const std::size_t mask = shard.slots.size() - 1;
        for (std::size_t slot = set.hash() & mask;; slot = (slot + 1) & mask) {
            const auto [number, tag] = shard.slots[slot];
            if (number == 0) return slot;
            if (tag == tag_of(set.hash()) && same_words(entry(shard, number - 1).words, set.words())) return slot;
        }
    }

    Entry find_or_add(Shard& shard, const NodeSet& set, std::int32_t size) {
        if (2 * (std::size_t{shard.count} + 1) > shard.slots.size() && !grow_slots(shard)) return {};
        const std::size_t slot = slot_of(shard, set);
        if (shard.slots[slot].number != 0) return entry(shard, shard.slots[slot].number - 1);
        const std::uint32_t index = shard.count;
        if (index >> block_bits_ == shard.blocks.size() && !grow_blocks(shard)) return {};
        shard.slots[slot] = {++shard.count, tag_of(set.hash())};
        shard.by_size[size].push_back(index);
        const Entry added = entry(shard, index);
        added.words[-1] = set.hash();
        std::ranges::copy(set.words(), added.words);
        return added;
    }

    bool grow_slots(Shard& shard) {
        const std::size_t size = std::max<std::size_t>(64, 2 * shard.slots.size());
        if (!allow(static_cast<std::int64_t>((size - shard.slots.size()) * sizeof(Slot)))) return false;
        std::vector<Slot> slots(size);
        for (std::uint32_t index = 0; index < shard.count; ++index) {
            const std::uint64_t hash = entry(shard, index).hash();
            std::size_t slot = hash & (size - 1);
            while (slots[slot].number != 0) slot = (slot + 1) & (size - 1);
            slots[slot] = {index + 1, tag_of(hash)};
        }
        shard.slots = std::move(slots);
        return true;
    }

    bool grow_blocks(Shard& shard) {
        if (!allow(block_bytes_)) return false;
        const std::size_t entries = std::size_t{1} << block_bits_;
        shard.blocks.push_back({std::make_unique<std::uint64_t[]>(entries * (words_ + 1)),
                                std::make_unique<Costs[]>(entries * states_)});
        return true;
    }

    bool allow(std::int64_t more) { return (bytes_ += more) <= max_bytes_; }

    std::int64_t words_, states_, max_bytes_;
    bool shared_;
    int block_bits_ = 0;
    std::int64_t block_bytes_ = 0;
    std::atomic<std::int64_t> bytes_ = 0;
    std::vector<Shard> shards_;
};

}  // namespace stead
