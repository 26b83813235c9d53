// failure_sender.hpp: sends the failures of this host to the leaders of other hosts.
#pragma once
#include <map>
#include <memory>

#include "src/control/health_table.hpp"
#include "src/control/tree/tree_links.hpp"

namespace weft::internal {

// Owned by Control, thread-bound to the service thread.
class FailureSender {
  public:
    // `tree_links` and `health_table` outlive it.
    FailureSender(std::shared_ptr<Segment> segment, TreeLinks& tree_links, const HealthTable& health_table)
        : segment_(std::move(segment)), tree_links_(&tree_links), health_table_(&health_table) {}
    // The first error, once, to all neighbours but `except`.
    void send_abort(int except);
    // The errors that were returned to local ranks since the last call (ReturnedError).
    void send_returned_errors();
    // Neighbouring hosts have all failures, or had a second to receive them.
    bool arrived() const;

  private:
    std::shared_ptr<Segment> segment_;
    TreeLinks* tree_links_;
    const HealthTable* health_table_;
    bool abort_sent_ = false;
    int64_t sent_us_ = 0;
    std::map<int, uint64_t> returned_;  // ReturnedError::calls of local ranks, as sent to others
};

}  // namespace weft::internal
