// patterns.hpp: communication patterns that several algorithms share: the binomial tree, the circulant's skips, turns.
#pragma once
#include <algorithm>
#include <vector>

#include "src/schedule/layout.hpp"

namespace weft::internal {

// The binomial tree as one rank sees it. Positions count from the root. The parent of v is v without its lowest bit, so
// the subtree of v is v .. v + 2^k - 1, cut at the number of ranks.
struct BinomialPosition {
    int ranks, here;

    int reach() const {  // size of the subtree if there were enough ranks
        int bit = 1;
        while (bit < ranks && (here == 0 || !(here & bit))) bit *= 2;
        return bit;
    }
    int parent() const { return here & (here - 1); }
    std::vector<int> children() const {  // the largest subtree first
        std::vector<int> all;
        for (int bit = reach() / 2; bit > 0; bit /= 2)
            if (here + bit < ranks) all.push_back(here + bit);
        return all;
    }
    int size_of(int place) const { return std::min(BinomialPosition{ranks, place}.reach(), ranks - place); }
};

// Ranks host by host, counted from the root.
struct FromRoot {
    RankOrder order;
    int first;  // position of the root
    int here;   // position of this rank

    FromRoot(const Layout& layout, int root)
        : order(layout.host_major()),
          first(order.position_of(root)),
          here((layout.position() - first + layout.ranks) % layout.ranks) {}
    int ranks() const { return int(order.size()); }
    int rank(int place) const { return order[size_t((first + place) % ranks())]; }
};

// The skips of the circulant: 1, .., N; each is half of the next, rounded up.
inline std::vector<int> circulant_skips(int ranks) {
    std::vector<int> skips = {ranks};
    while (skips.back() > 1) skips.push_back((skips.back() + 1) / 2);
    std::reverse(skips.begin(), skips.end());
    return skips;
}

// All peers of a rank, in turns: two ranks have each other in the same turn. So a message never waits for a later turn
// of its sender, and tiles are pipelined from turn to turn.
inline std::vector<int> others_in_turns(int place, int count) {
    std::vector<int> others;
    for (int turn = 0; turn < count; ++turn)
        if (const int other = (turn - place + count) % count; other != place) others.push_back(other);
    return others;
}

}  // namespace weft::internal
