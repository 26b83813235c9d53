// check_in_client.hpp: a host's leader checks in at the root. It connects until the root answers, reports the host's
// ranks and later ranks, and receives the rank table in the end.
#pragma once
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "src/control/control_connection.hpp"
#include "src/control/rank_table.hpp"

namespace weft::internal {

struct CheckInSettings {
    std::vector<net::Address> root;  // its addresses
    bool root_exists = false;        // the root is older than the id, so `unknown` there is final
    bool root_elsewhere = false;     // this process is not the root and will not be
    std::string root_hint;           // HostRendezvous::root_hint()
    bool listener_existed = false;   // a process has listened there: if no process listens, it has ended
    HostEntry self;                  // without members
};

// Owned by Control, thread-bound to the service thread.
class CheckInClient {
  public:
    using OnRankTable = std::function<void(RankTable)>;
    CheckInClient(Service& service, std::shared_ptr<Segment> segment, const net::Identity& identity,
                  CheckInSettings settings, OnRankTable on_rank_table);

    void begin() { connect(); }
    void end();
    // Reports the ranks that have joined since.
    void report_joined();
    // Reports, once, that this host's ranks have given up.
    void send_abort();
    // The ranks of this host that the root knows, or will know.
    const std::set<int>& members() const { return members_; }
    // The obstacle to checking in, or the missing ranks; empty: unknown.
    std::string obstacle() const;

  private:
    bool all_here() const;
    void connect();
    void check_in(Fd socket);
    std::vector<RankEntry> newly_joined();
    void put_members(ByteWriter& to, const std::vector<RankEntry>& members) const;
    void on_frame(uint32_t kind, ByteReader& content);

    Service* service_;
    std::shared_ptr<Segment> segment_;
    net::Identity identity_;
    CheckInSettings settings_;
    OnRankTable on_rank_table_;
    std::unique_ptr<AsyncConnect> connect_;
    std::unique_ptr<ControlConnection> root_;
    std::set<int> members_;
    CpuShare share_;  // the processors of the members
    bool abort_sent_ = false;
    int64_t retry_us_;
    int64_t refused_us_ = 0;  // since when no process listens at the root's addresses; 0: one does
    uint64_t retry_timer_ = 0;
    std::string obstacle_;  // as last received
};

}  // namespace weft::internal
