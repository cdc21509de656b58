// Every way to grow a set of nodes that stays closed, each exactly once and without remembering where it has been.
#pragma once

#include <cstdint>
#include <vector>

#include "stages/stages.h"

namespace stead {

/// Candidates are nodes that may join next. At each level the walk takes them one by one; what it has passed over stays
/// out from there on, so no set is met twice. Nodes that a new member sets free queue up behind the others.
class IdealWalk {
public:
    /// A node may join after all its `earlier` nodes that are free to join; it is one of those of its `later` nodes.
    IdealWalk(const Lists& earlier, const Lists& later, std::int32_t nodes)
        : earlier_(earlier), later_(later), waits_for_(nodes, 0), candidates_(nodes, 0), levels_(nodes + 1) {}

    /// Before a walk: free(v) tells which nodes may join at all.
    template <class Free>
    void start(Free free) {
        levels_[0] = {};
        const auto nodes = static_cast<std::int32_t>(waits_for_.size());
        for (std::int32_t v = 0; v < nodes; ++v) {
            if (!free(v)) continue;
            waits_for_[v] = 0;
            for (const std::int32_t before : earlier_[v]) waits_for_[v] += free(before);
            if (waits_for_[v] == 0) candidates_[levels_[0].end++] = v;
        }
    }

    /// Calls enter(v) to add a node to the set, which may refuse it (then it fits no larger set either), and leave(v)
    /// to take it out again; enough(v) asks, with v staying out for good, whether to stop looking at this level;
    /// stopped() ends the walk where it is.
    template <class Visitor>
    void run(Visitor& visitor) {
        for (Level* level = levels_.data(); !visitor.stopped();) {
            if (level->next < level->end) {
                const std::int32_t v = candidates_[level->next++];
                if (visitor.enter(v))
                    level = descend(level, v);
                else if (visitor.enough(v))
                    level->next = level->end;
            } else {
                if (level == levels_.data()) return;
                const std::int32_t v = level->node;
                for (const std::int32_t after : later_[v]) ++waits_for_[after];
                --level;
                visitor.leave(v);
                if (visitor.enough(v)) level->next = level->end;
            }
        }
    }

private:
    struct Level {
        std::int32_t next = 0, end = 0;  // of candidates
        std::int32_t node = 0;           // the last one that joined
    };

    Level* descend(Level* level, std::int32_t v) {
        std::int32_t end = level->end;
        for (const std::int32_t after : later_[v])
            if (--waits_for_[after] == 0) candidates_[end++] = after;
        level[1] = {level->next, end, v};
        return level + 1;
    }

    const Lists& earlier_;
    const Lists& later_;
    std::vector<std::int32_t> waits_for_;   // [node]; free nodes that must join before it
    std::vector<std::int32_t> candidates_;  // of all levels; each node at most once
    std::vector<Level> levels_;             // [size of the set]
};

}  // namespace stead
