// check_in_client.hpp: how a host's leader checks in at the root: it calls the root until it answers, says which ranks are
// here and later who else has come, and hears in the end who all the ranks are. Thread-bound to the service thread.
#pragma once
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "src/control/control_connection.hpp"
#include "src/control/rank_table.hpp"

namespace weft::internal {

struct CheckInSettings {
    std::vector<net::Address> root;  // where to check in
    bool root_exists = false;        // it was there before anybody knew its address: being unknown there is final
    bool root_elsewhere = false;     // it is not this process, now or later
    std::string root_hint;           // HostRendezvous::root_hint()
    bool listener_existed = false;   // a process let others in there already: where nobody listens it has ended
    HostEntry self;                  // without members
};

class CheckInClient {
  public:
    using OnRankTable = std::function<void(RankTable)>;
    CheckInClient(Service& service, std::shared_ptr<Segment> segment, const net::Identity& identity,
                  CheckInSettings settings, OnRankTable on_rank_table);

    void begin() { connect(); }
    void end();
    // Tells the root which ranks have joined since.
    void look_around();
    // Tells the root, once, that this host's ranks have given up.
    void tell_abort();
    // Ranks of this host that the root knows, or will.
    const std::set<int>& members() const { return members_; }
    // What stands in the way of checking in, or who has not come; empty: nothing known.
    std::string obstacle() const;

  private:
    bool all_here() const;
    void connect();
    void check_in(Fd socket);
    std::vector<RankEntry> newly_joined();
    CpuShare share() const;
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
    bool abort_told_ = false;
    int64_t retry_us_;
    int64_t refused_us_ = 0;  // since when nobody listens where the root is to be; 0: not so
    uint64_t retry_timer_ = 0;
    std::string obstacle_;  // as last heard
};

}  // namespace weft::internal
