// new_lanes.hpp: the queue pairs that one side offers for a link, until the link is up.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "transports/verbs/site.hpp"

namespace weft::internal::verbs {

// Owned by a link's set-up. Thread-bound to the service thread, except connect().
class NewLanes {
  public:
    // For each rail that both sides have: the places of its GIDs in the own and in the peer's list.
    using Gids = std::vector<std::pair<size_t, size_t>>;

    // Makes the queue pairs of all rails, ready to receive. Once; `link` is its index.
    Status make(Site& site, uint32_t link);
    Offer offer(const Site& site, uint64_t peer_token) const;
    // verbs.path: no GIDs fit.
    Result<Gids> choose(const Site& site, const Offer& own, const Offer& peer) const;
    // The peer's choice. Empty: its numbers cannot be right.
    Gids chosen_by(const Offer& answer) const;
    // Keeps the queue pairs that both sides have.
    void pair_with(const Offer& peer, const Gids& gids);

    // Shared with the thread that connects them.
    using Lanes = std::shared_ptr<std::vector<Lane>>;
    const Lanes& lanes() const { return lanes_; }
    Lanes take() { return std::exchange(lanes_, nullptr); }
    size_t rails() const { return gids_.size(); }
    // To RTR and RTS. May block for seconds. verbs.path, verbs.call.
    static Status connect(std::vector<Lane>& lanes, const PathOptions& path);

  private:
    Status make_pair(Site& site, size_t rail, uint32_t link, bool flushes);

    std::vector<std::vector<PortGid>> gids_;  // by rail
    Lanes lanes_;
};

}  // namespace weft::internal::verbs
