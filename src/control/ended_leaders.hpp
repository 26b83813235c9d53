// ended_leaders.hpp: the hosts whose leaders have ended, as this host knows. Connection info and reports between two hosts
// pass through the leaders on the way, their own included.
#pragma once
#include <map>
#include <vector>

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
    // The same, if that leader died: one that has left in order is no reason to end a connection.
    int dead_on_the_way_to(int rank) const;
    // host.lost: `rank` waits for `other`, whose connection info (`connecting`), or reports, would pass through the leader of
    // which `leader` is a rank.
    Status failure(int leader, int rank, int other, bool connecting) const;

  private:
    const Segment* segment_;
    std::map<int, int> ranks_;  // a rank of the ended leader, by host
};

// Looks, again and again, whether the connection info of missing ranks can still come. For one thread.
class LeaderWatch {
  public:
    // host.lost, after this patience with a leader: info that it forwarded before its end may still be on its way.
    Status look(const Segment& segment, int rank, const std::vector<int>& missing, int64_t patience_us, int64_t now_us);

  private:
    std::map<int, int64_t> since_us_;  // when look() found a leader on the way ended, by a rank of it
};

}  // namespace weft::internal
