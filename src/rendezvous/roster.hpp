// roster.hpp: the hosts and ranks that have checked in at the root, and the rank table that follows from them. Knows no
// connections. A value.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "src/control/check_in.hpp"

namespace weft::internal {

class Roster {
  public:
    // A host checks in with the content of CheckInFrame::host. Returns its place. After a failure the roster is of no
    // use. mismatch.ranks, mismatch.rank-twice, internal.damaged.
    Result<int> add_host(ByteReader& content);
    // CheckInFrame::joined. Errors as above.
    Status add_joined(ByteReader& content);
    // CheckInFrame::machine. `digest`: Secret::prove() of the text.
    void add_machine(const net::Digest& digest, std::string text);

    // Where the host of this place waits. Asks for the machine's text at most once for equal machines.
    Placement placement(int place);
    // The host at this place; it exists.
    const HostEntry& host(int place) const { return hosts_[size_t(place) - 1]; }
    bool has(int place) const { return place > 0 && place <= int(hosts_.size()); }
    int ranks() const { return ranks_; }  // 0: no host has checked in
    int hosts() const { return int(hosts_.size()); }
    bool all_joined() const { return ranks_ > 0 && int(place_of_.size()) == ranks_; }
    // All ranks have joined, and the texts of all machines are known.
    bool complete() const { return all_joined() && awaited_texts_ == 0; }
    std::string missing() const;  // `ranks 4 to 7`
    RankTable rank_table() const;

  private:
    Status add_ranks(int place, const std::vector<RankEntry>& members, ByteReader& content);

    std::vector<HostEntry> hosts_;  // by place, from 1 on
    int ranks_ = 0;                 // as the first host was given
    std::map<int, int> place_of_;   // by rank
    AgreedOptions agreed_{};
    AgreedTexts texts_;  // of rank 0
    std::map<net::Digest, std::string> machines_;
    int awaited_texts_ = 0;
};

}  // namespace weft::internal
