// host_rows.hpp: a leader writes the rank table, and the loss of a host, into its segment.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "src/control/rank_table.hpp"

namespace weft::internal {

// Whether the members of `host` are the ranks that joined here. `joined`: of this host.
bool is_this_host(const Segment& segment, const HostEntry& host, const std::set<int>& joined);
// Writes the rank table and wakes all ranks, which find the communicator complete. Takes the texts out of the table.
// Returns the index of this host. mismatch.rank-twice: a rank joined here and elsewhere.
Result<int> write_rank_table(Segment& segment, RankTable& rank_table, const std::set<int>& joined);
// The joined ranks whose processes have ended without leaving.
std::vector<int> dead_ranks(const Segment& segment, const std::set<int>& joined);

// The ranks of the leader's process.
std::vector<int> ranks_of_leader(const RankTable& rank_table, int host);
// Whether that process ended in order, perhaps without a shutdown frame (_exit): its ranks have reported that they left.
// Data connections of other processes of its host do not need it.
bool leader_has_left(const Segment& segment, const RankTable& rank_table, int host);
// Marks the ranks of `host` as dead. No error by itself: the data that the host sent before may suffice for the calls of
// other ranks. A rank that waits for the host in vain reports it.
// An empty sentence: its leader had left and forwards nothing any more; the other ranks of that host go on.
void write_lost_host(Segment& segment, const RankTable& rank_table, int host, const std::string& sentence);
// The sentence about the end of its leader's connection, without or with an error.
std::string lost_text(const RankTable& rank_table, int host, const Status& why);
// Marks the ranks of its leader: nothing passes through it any more.
void write_ended_leader(Segment& segment, const RankTable& rank_table, int host);

}  // namespace weft::internal
