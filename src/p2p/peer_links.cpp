#include "src/p2p/peer_links.hpp"

#include <algorithm>

#include "src/schedule/tiles.hpp"

namespace weft::internal {

namespace {

// Slots: enough that the sender fills one while the receiver empties another, even if one of them polls late.
constexpr int depth_here = 8, depth_remote = 4;
// The share of a rank's heap for all links, and the largest slot.
constexpr size_t heap_share = size_t(16) << 20, slot_bytes_most = 128 << 10;

}  // namespace

PeerLinks::PeerLinks(Segment& group, int rank, const Settings& settings)
    : segment_(&group),
      user_memory_(settings.user_memory),
      here_(group, rank,
            {.identity = settings.identity,
             .slot_bytes = std::min(heap_share / group.locals().size(), depth_here * slot_bytes_most) / default_slots /
                           line_bytes * line_bytes,
             .name = settings.name,
             .heap_used = settings.heap_used,
             .peer_access = settings.peer_access}),
      remote_(group, rank,
              {.identity = settings.identity,
               .slot_bytes = settings.remote_slot_bytes,
               .name = settings.name,
               .heap_used = settings.heap_used,
               .only_remote = true}) {}

// The first rank listens. Both directions are connected when the second rank has taken its step.
Status PeerLinks::connect(int peer, PeerLink& link) {
    const auto [place, fresh] = sets_.try_emplace(peer);
    ConnectionSet& set = place->second;
    if (fresh) begin(peer, link, set);
    RankSet missing;
    auto connected = (link.remote ? remote_ : here_).connect(set, missing);
    if (!connected) return connected.take_status();
    const BlockEnds& ends = set.ends[0];
    link.source = ends.source;
    link.same_process = ends.source_in_process;
    link.arena = ends.source_arena;
    if (!*connected) return ok();
    link.target = ends.target;
    link.reads_us = ends.target_reads;
    if (ends.target_is_remote && ends.target_transport == user_memory_->transport()) {
        link.user_memory = user_memory_;
        // Both ranks agree on one transport for both directions.
        if (ends.target_transport && ends.target_transport->can(Capability::offers)) link.offers = uint64_t(set.depth);
    }
    link.connected = true;
    return ok();
}

void PeerLinks::end(int peer) {
    sets_.erase(peer);
    (segment_->local(peer) ? here_ : remote_).end(peer);
}

int PeerLinks::depth_to(int peer) const { return segment_->local(peer) ? depth_here : depth_remote; }

bool PeerLinks::called_by(int peer) const {
    return (segment_->local(peer) ? here_ : remote_).called_by(peer, depth_to(peer));
}

void PeerLinks::begin(int peer, PeerLink& link, ConnectionSet& set) const {
    set.depth = depth_to(peer);
    set.wanted = {{.channel = 0, .source = peer, .target = peer}};
    link.remote = !segment_->local(peer);
    link.slot_bytes = (link.remote ? remote_ : here_).slot_bytes(depth_to(peer));
}

}  // namespace weft::internal
