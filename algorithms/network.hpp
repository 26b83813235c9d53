// network.hpp: what rounds of messages cost where some ranks share a host: for the predictions of this folder.
#pragma once
#include "src/schedule/layout.hpp"

namespace weft {

// Made for one prediction. Places are those of Layout::host_major().
class Network {
  public:
    Network(const Layout& layout, const LinkCosts& costs);

    int hosts() const { return hosts_; }
    int ranks_a_host() const { return ranks_a_host_; }  // of the largest
    // A message of nothing, to another host or within one.
    double message_us(bool crosses) const;
    // Every rank sends `bytes` to the one `distance` places ahead and adds or stores what comes.
    double round_us(int distance, double bytes) const;
    // What the processor does with a message besides: into the slot, out of it, into place.
    double handling_us(double bytes) const;
    // `bytes` through each host's link.
    double link_us(double bytes) const { return bytes * costs_.net_us_per_byte; }

  private:
    const LinkCosts& costs_;
    int ranks_;
    int hosts_;
    int ranks_a_host_;
};

}  // namespace weft
