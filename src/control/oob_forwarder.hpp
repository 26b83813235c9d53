// oob_forwarder.hpp: the control plane's part of the out-of-band store (OobStore): carries entries to the hosts
// of their targets.
#pragma once
#include <map>
#include <memory>
#include <set>

#include "src/control/tree/tree_links.hpp"
#include "src/segment/oob_store.hpp"

namespace weft::internal {

// Owned by Control, thread-bound to the service thread.
class OobForwarder {
  public:
    // `rank_table` and `tree_links` outlive it.
    OobForwarder(std::shared_ptr<Segment> segment, const RankTable& rank_table, TreeLinks& tree_links, int host,
                 Clock clock);
    // Sends the entries that local ranks have put for other hosts.
    void send_pending();
    // An entry of another host: delivers or forwards it. False: it is damaged.
    bool on_frame(ByteReader& content);
    // There are entries without a path that were not reported yet.
    bool has_unreachable() const { return !unreachable_.empty(); }
    // They have waited for some seconds for a better error, and are to be reported.
    bool unreachable_due() const;
    // Raises an error for a living target of such an entry, because the two ranks would wait for each other for ever.
    // True: raised. Ranks that died or left have been reported by others.
    bool report_unreachable();

  private:
    void forward(const OobEntry& entry);

    std::shared_ptr<Segment> segment_;
    const RankTable* rank_table_;
    TreeLinks* tree_links_;
    int host_;
    Clock clock_;
    std::map<int, uint32_t> sent_;  // entries sent so far, by local rank
    std::set<int> unreachable_;     // targets of entries without a path
    int64_t unreachable_since_us_ = 0;
};

}  // namespace weft::internal
