// child_watch.hpp: whether the ranks that are joining a child can still come, as the parent's segment shows it.
#pragma once
#include <optional>

#include "src/comm/communicator.hpp"
#include "src/control/remote_health.hpp"
#include "src/rendezvous/split_rendezvous.hpp"

namespace weft::internal {

// Owned by a Splitting. Thread-bound to the rank. Other failures of the parent do not concern the child.
class ChildWatch {
  public:
    // `gathered`: the ranks have exchanged their entries over the parent. `child` must outlive this.
    ChildWatch(Communicator& parent, const Child& child, bool gathered);
    // Fails if a rank cannot come any more. `by_id`: the ranks meet by an id, so they may be on several hosts.
    Status look(bool by_id);

  private:
    Status look_at_remote_ranks(int64_t now);
    bool is_gone(int rank) const;
    Status has_gone(int rank) const;
    Status has_given_up(int rank) const;

    Communicator& parent_;
    const Child& child_;
    bool gathered_;
    GivenUp given_up_;
    RemoteHealth health_;
    int64_t begun_us_, next_look_us_ = 0;
    int64_t missed_us_ = 0;  // since when a rank on another host is gone; 0: none is
};

}  // namespace weft::internal
