#include "src/peer_access/peer_access.hpp"

namespace weft::internal {

CanRead PeerAccess::can_read(int peer) {
    if (!host_->local(peer)) return {};
    if (host_->same_process(rank_, peer)) return {.addresses = true};
    return {.addresses = cma_works(peer), .arena = arena_in_use(peer) != nullptr};
}

bool PeerAccess::cma_works(int peer) {
    const auto [place, fresh] = cma_works_.try_emplace(peer, false);
    if (fresh) place->second = settings_.cma && cma_.probe(peer);
    return place->second;
}

}  // namespace weft::internal
