// network.hpp: the cost of rounds of messages if some ranks share a host; for the predictions of this folder.
#pragma once
#include <algorithm>
#include <vector>

#include "src/schedule/layout.hpp"

namespace weft::internal {

// Made for one prediction. Positions are those of Layout::host_major().
class Network {
  public:
    // bytes: of the message. On one host its pieces have the same cache distance as the whole buffer.
    Network(const Layout& layout, const LinkCosts& costs, size_t bytes);

    int hosts() const { return hosts_; }
    int ranks_a_host() const { return ranks_a_host_; }  // of the largest host
    // An empty message, to another host or within one. `working`: the share of ranks that work meanwhile; the fewer
    // work, the fewer share a core.
    double message_us(bool crosses, double working = 1) const;
    // The same for a sender that does not wait for the receiver: skew between ranks costs nothing unless they share
    // cores.
    double one_way_us(bool crosses, double working = 1) const;
    // Whether hosts are machines, whose links and processors work in parallel. Those of one machine work one after the
    // other.
    bool machines() const { return hosts_ > 1 && !costs_.one_machine; }
    // The number of ranks whose messages cost what a message to another host costs.
    int remote_peers() const { return machines() ? ranks_ - ranks_a_host_ : ranks_ - 1; }
    // Processor time for a message at one end.
    double end_us() const { return machines() ? costs_.net_message_us / 2 : costs_.net_message_us; }
    // Extra cost of a message within a host where ranks share cores: the receiver waits for its turn.
    double turns_us() const { return 3.0 * (costs_.ranks_per_core - 1); }
    // For two ranks of a host of which one only sends: the sender must see that its slots are free again.
    double slot_back_us() const { return ranks_ == 2 && hosts_ == 1 ? 1.5 * costs_.signal_us : 0; }
    // Processor time for the data of a message: into the slot, out of it, into place.
    double handling_us(double bytes) const;
    // Received data is reduced, or, if it is finished, placed directly: between hosts without a slot, if possible.
    enum class ReceivedData { parts, finished };
    double handling_us(double bytes, bool crosses, ReceivedData received_data) const {
        return handling_us(bytes) /
               (crosses && received_data == ReceivedData::finished && !costs_.net_by_kernels ? 3 : 1);
    }
    // A rank's link to other hosts, among those of all hosts: all_links() of them.
    int link_of(int rank) const { return link_of_.empty() ? layout_.host_of(rank) : link_of_[size_t(rank)]; }
    int all_links() const { return hosts_ * costs_.net_links; }
    // If this many ranks of each host, the first or the last ones, send or receive: the most of them that share one
    // link.
    int on_a_link(int crossing) const { return sharing_.empty() ? crossing : sharing_[size_t(crossing)]; }
    // The same if they are the first ones by rails (Hosts::by_rails).
    int owners_on_a_link(int owners) const { return spread_.empty() ? owners : spread_[size_t(owners)]; }
    // `bytes` through one link of each host, to the next host or to a distant one. The links of one machine are its
    // processors, which work for one rank after the other.
    double link_us(double bytes, bool far = false) const {
        return bytes * costs_.net_us_per_byte * (far ? costs_.net_far : 1) *
               (costs_.one_machine ? costs_.ranks_per_core : 1);
    }
    // Through the link of one host, while the others are idle.
    double lone_link_us(double bytes) const { return bytes * costs_.net_us_per_byte; }
    // Rounds one after the other, summed by the resource that they occupy.
    struct Rounds {
        double latency_us = 0, link_us = 0, handling_us = 0;
        // The longest wait of one round, and its longest work.
        double longest_wait_us = 0, longest_work_us = 0;
        int near_distance = 0;  // of rounds between ranks less than a host apart, together
        void add(double message_us, double through_link_us, double by_processor_us) {
            latency_us += message_us;
            link_us += through_link_us;
            handling_us += by_processor_us;
            longest_wait_us = std::max(longest_wait_us, message_us);
            longest_work_us = std::max(longest_work_us, through_link_us + by_processor_us);
        }
    };
    // Adds a round in which every rank, or this many of them, sends `bytes` to the rank `distance` positions ahead.
    void add_round(Rounds& rounds, int distance, double bytes, ReceivedData received_data) const {
        add_round(rounds, distance, bytes, received_data, ranks_);
    }
    void add_round(Rounds& rounds, int distance, double bytes, ReceivedData received_data, int senders) const;
    // Transmission, and the processing that overlaps with it.
    double carried_us(double link_us, double handling_us) const;
    // Cost of `bytes` in tiles of `tile_bytes` that follow each other through the rounds. While one tile travels, the
    // processor works on the next, though transmission needs it, too. A round sends its part of a tile after it has
    // received that of the previous tile.
    double overlapped_us(const Rounds& rounds, double bytes, double tile_bytes) const;
    // A tile's first sum writes scratch that the last round of the previous tile reads: only its first message
    // overlaps.
    double by_scratch_us(const Rounds& rounds, double bytes, double tile_bytes) const;
    // A tile waits for the previous one, because both use the same scratch.
    static double in_turn_us(const Rounds& rounds, double bytes, double tile_bytes);

  private:
    int sharing(double working) const;  // ranks that share a core
    // The links of one machine are its processors, which work one after the other.
    bool links_are_cores() const { return costs_.one_machine && costs_.ranks_per_core > 1; }
    void find_links();

    const Layout& layout_;
    const LinkCosts& costs_;
    int ranks_;
    int hosts_;
    int ranks_a_host_;
    size_t working_bytes_;  // of a rank, on one host
    // If hosts have several links: each rank's link, and, by the number of ranks of a host, the number on one link.
    std::vector<int32_t> link_of_, sharing_, spread_;
};

}  // namespace weft::internal
