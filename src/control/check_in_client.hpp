// check_in_client.hpp: a host's leader checks in at the root. It connects until the root answers, reports the host's
// ranks, and is told its place in the CheckInTree. It then waits at its parent there, reports later ranks, and receives
// the rank table in the end, which it passes on to the leaders below it. If the parent cannot be reached it waits at the
// root.
#pragma once
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "src/control/check_in_relay.hpp"
#include "src/control/joined_ranks.hpp"
#include "src/control/parent_link.hpp"

namespace weft::internal {

struct CheckInSettings {
    std::vector<net::Address> root;  // its addresses
    bool root_exists = false;        // the root is older than the id, so `unknown` there is final
    bool root_elsewhere = false;     // this process is not the root and will not be
    std::string root_hint;           // HostRendezvous::root_hint()
    bool listener_existed = false;   // a process has listened there: if no process listens, it has ended
    HostEntry self;                  // without members
    // Counted on the service thread.
    std::shared_ptr<CheckInTraffic> traffic = std::make_shared<CheckInTraffic>();
};

// Owned by Control, thread-bound to the service thread.
class CheckInClient {
  public:
    using OnRankTable = std::function<void(RankTable)>;
    CheckInClient(std::shared_ptr<AcceptDispatcher> dispatcher, std::shared_ptr<Segment> segment,
                  const net::Identity& identity, CheckInSettings settings, OnRankTable on_rank_table);

    void begin() { connect(); }
    void end();
    // Reports the ranks that have joined since.
    void report_joined();
    // Reports, once, that this host's ranks have given up.
    void send_abort();
    // The ranks of this host that the root knows, or will know.
    const std::set<int>& members() const { return joined_.members(); }
    // The obstacle to checking in, or the missing ranks; empty: unknown.
    std::string obstacle() const;
    // Tells the leaders below if those above are silent. Called at the slow tick.
    void tick();
    // The leaders below have the outcome.
    bool relayed() const { return relay_.idle(); }

  private:
    void connect();
    void on_failed_connect(const Status& why);
    void check_in(Fd socket);
    void on_root_end(const Status& why);
    bool attached() const { return parent_ && parent_->connection(); }
    // The connection over which this leader reports and hears: to the root at first. Null: none.
    ControlConnection* up() const { return attached() ? parent_->connection() : root_.get(); }
    void send(ControlConnection& link, CheckInFrame kind, const ByteWriter& content = {});
    void on_frame(CheckInFrame kind, ByteReader& content);
    void on_placed(ByteReader& content);
    void connect_to_parent();
    void wait_at_root(const std::string& why);
    void close();

    std::shared_ptr<AcceptDispatcher> dispatcher_;
    std::shared_ptr<Segment> segment_;
    net::Identity identity_;
    CheckInSettings settings_;
    OnRankTable on_rank_table_;
    std::unique_ptr<AsyncConnect> connect_;    // to the root
    std::unique_ptr<ControlConnection> root_;  // until the parent has taken this leader
    std::unique_ptr<ParentLink> parent_;       // null if that is the root
    Placement placement_;
    CheckInRelay relay_;
    JoinedRanks joined_;
    bool abort_sent_ = false;
    struct {
        int64_t after_us = 20'000;
        int64_t refused_us = 0;  // since when no process listens at the root's addresses; 0: one does
        uint64_t timer = 0;
    } retry_;
    std::string obstacle_;  // as last received
};

}  // namespace weft::internal
