// network.hpp: what rounds of messages cost where some ranks share a host: for the predictions of this folder.
#pragma once
#include <algorithm>
#include <vector>

#include "src/schedule/layout.hpp"

namespace weft::internal {

// Made for one prediction. Places are those of Layout::host_major().
class Network {
  public:
    // bytes: of the message. On one host its pieces are as far from the processors as it is as a whole.
    Network(const Layout& layout, const LinkCosts& costs, size_t bytes);

    int hosts() const { return hosts_; }
    int ranks_a_host() const { return ranks_a_host_; }  // of the largest
    // A message of nothing, to another host or within one. `working`: the share of the ranks that have something to do
    // meanwhile, so that fewer share a core.
    double message_us(bool crosses, double working = 1) const;
    // The same of who sends and goes on: nobody is waited for, so that ranks arrive apart costs nothing, unless they
    // share cores.
    double one_way_us(bool crosses, double working = 1) const;
    // Whether hosts are machines, whose links and processors work side by side; those of one machine do one after the
    // other.
    bool machines() const { return hosts_ > 1 && !costs_.one_machine; }
    // Other ranks whose messages take what one to another host does.
    int remote_peers() const { return machines() ? ranks_ - ranks_a_host_ : ranks_ - 1; }
    // What a processor does for a message at one of its ends.
    double end_us() const { return machines() ? costs_.net_message_us / 2 : costs_.net_message_us; }
    // What each message within a host costs besides where ranks share cores: its receiver's turn. Measured for 2 to 8 ranks
    // on 2 cores.
    double turns_us() const { return 3.0 * (costs_.ranks_per_core - 1); }
    // Of two ranks of a host, one of which only sends: it has to see that the slots it used are free again. Measured, with a
    // core each, of calls one behind the other.
    double slot_back_us() const { return ranks_ == 2 && hosts_ == 1 ? 1.5 * costs_.signal_us : 0; }
    // What the processor does with a message besides: into the slot, out of it, into place.
    double handling_us(double bytes) const;
    // What comes is added or, if it is finished, only let into its place: between hosts past the slots, if that goes.
    enum class ReceivedData { parts, finished };
    double handling_us(double bytes, bool crosses, ReceivedData received_data) const {
        return handling_us(bytes) /
               (crosses && received_data == ReceivedData::finished && !costs_.net_by_kernels ? 3 : 1);
    }
    // A rank's link to other hosts, among those of all hosts: all_links() of them.
    int link_of(int rank) const { return link_of_.empty() ? layout_.host_of(rank) : link_of_[size_t(rank)]; }
    int all_links() const { return hosts_ * costs_.net_links; }
    // Where so many ranks of each host, the first or the last ones, have something to send or to take, those that share
    // one link.
    int on_a_link(int crossing) const { return sharing_.empty() ? crossing : sharing_[size_t(crossing)]; }
    // The same where they are the first by rails (Hosts::by_rails).
    int owners_on_a_link(int owners) const { return spread_.empty() ? owners : spread_[size_t(owners)]; }
    // `bytes` through one link of each host, to the next host or to one further away. The links of one machine are its
    // processors, which carry for one rank after the other.
    double link_us(double bytes, bool far = false) const {
        return bytes * costs_.net_us_per_byte * (far ? costs_.net_far : 1) *
               (costs_.one_machine ? costs_.ranks_per_core : 1);
    }
    // Through one host's, while the others have nothing to carry.
    double lone_link_us(double bytes) const { return bytes * costs_.net_us_per_byte; }
    // Rounds one after the other, summed up by what keeps them busy.
    struct Rounds {
        double latency_us = 0, link_us = 0, handling_us = 0;
        // The most that one of them waits, and is busy otherwise.
        double longest_wait_us = 0, longest_work_us = 0;
        int near_distance = 0;  // of those between ranks that are less than a host apart, together
        void add(double message_us, double through_link_us, double by_processor_us) {
            latency_us += message_us;
            link_us += through_link_us;
            handling_us += by_processor_us;
            longest_wait_us = std::max(longest_wait_us, message_us);
            longest_work_us = std::max(longest_work_us, through_link_us + by_processor_us);
        }
    };
    // One more, in which every rank, or so many of them, sends `bytes` to the one `distance` places ahead.
    void add_round(Rounds& rounds, int distance, double bytes, ReceivedData received_data) const {
        add_round(rounds, distance, bytes, received_data, ranks_);
    }
    void add_round(Rounds& rounds, int distance, double bytes, ReceivedData received_data, int senders) const;
    // What travels, and what is done with it meanwhile.
    double carried_us(double link_us, double handling_us) const;
    // Of `bytes` in tiles of `tile_bytes`, each of which goes through the rounds behind the other: while one travels
    // the processor works on the next, though it has its part in the travelling too. A round sends its part of a tile when
    // it has what came of the tile before.
    double overlapped_us(const Rounds& rounds, double bytes, double tile_bytes) const;
    // Where a tile's first sum takes scratch that the last round of the one before has read: only its first message is on
    // its way by then.
    double by_scratch_us(const Rounds& rounds, double bytes, double tile_bytes) const;
    // Where a tile waits for the one before, whose scratch it takes.
    static double in_turn_us(const Rounds& rounds, double bytes, double tile_bytes);

  private:
    int sharing(double working) const;  // a core
    // The links of one machine are its processors, which do one after the other.
    bool links_are_cores() const { return costs_.one_machine && costs_.ranks_per_core > 1; }
    void find_links();

    const Layout& layout_;
    const LinkCosts& costs_;
    int ranks_;
    int hosts_;
    int ranks_a_host_;
    size_t working_bytes_;  // of a rank, on one host
    // Where hosts have several links: by rank its own, and by how many ranks of a host how many are on one.
    std::vector<int32_t> link_of_, sharing_, spread_;
};

}  // namespace weft::internal
