// ended_leaders.hpp: the hosts whose leaders have ended, as this host knows. Connection info and reports between two hosts
// pass through the leaders on the way, their own included.
#pragma once
#include <map>

#include "src/base/result.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

// A value: the knowledge of the moment when it is made. The segment must be settled and outlive it.
class EndedLeaders {
  public:
    explicit EndedLeaders(const Segment& segment);
    bool none() const { return ranks_.empty(); }
    // A rank of the first ended leader between this host and that of `rank`; -1: none has ended.
    int on_the_way_to(int rank) const;
    // host.lost: `rank` waits for `other`, whose connection info (`connecting`), or reports, would pass through the leader of
    // which `leader` is a rank.
    Status failure(int leader, int rank, int other, bool connecting) const;

  private:
    const Segment* segment_;
    std::map<int, int> ranks_;  // a rank of the ended leader, by host
};

}  // namespace weft::internal
