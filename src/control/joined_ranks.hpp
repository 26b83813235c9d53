// joined_ranks.hpp: the ranks of this host that have joined and that its leader reports to the root. Owned by
// CheckInClient, thread-bound to the service thread.
#pragma once
#include <memory>
#include <set>
#include <vector>

#include "src/control/check_in.hpp"

namespace weft::internal {

class JoinedRanks {
  public:
    explicit JoinedRanks(std::shared_ptr<Segment> segment) : segment_(std::move(segment)) {}
    // Those that have joined since the last call.
    std::vector<RankEntry> take();
    // Writes rank 0's options, tuning and refusal if rank 0 is among them.
    void put_options(ByteWriter& to, const std::vector<RankEntry>& members) const;
    // Those that take() has returned, and their processors.
    const std::set<int>& members() const { return members_; }
    const CpuShare& share() const { return share_; }
    // All ranks of the communicator are on this host.
    bool complete() const;

  private:
    std::shared_ptr<Segment> segment_;
    std::set<int> members_;
    CpuShare share_;
};

}  // namespace weft::internal
