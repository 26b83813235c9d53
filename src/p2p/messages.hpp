// messages.hpp: point-to-point messages of a rank: the exchange that moves them, and its connections
// (docs/design/connections.md, Point to point).
#pragma once
#include "src/p2p/peer_links.hpp"

namespace weft::internal {

// Owned by the communicator. Thread-bound to the rank.
class Messages {
  public:
    Messages(Segment& group, int rank, const PeerLinks::Settings& settings, const CpuKernels& cpu_kernels,
             size_t streamed_least)
        : links_(group, rank, settings),
          exchange_(group, rank, cpu_kernels, streamed_least,
                    [this](int peer, PeerLink& link) { return links_.connect(peer, link); }) {}
    Messages(const Messages&) = delete;
    Messages& operator=(const Messages&) = delete;

    Exchange& exchange() { return exchange_; }

  private:
    PeerLinks links_;
    Exchange exchange_;
};

}  // namespace weft::internal
