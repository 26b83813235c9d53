// tree_links.hpp: a leader's connections to its neighbours in the tree of hosts. It connects to its parent, and its
// children connect to it. Frames for a neighbour that is not connected yet are queued.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "src/control/control_connection.hpp"
#include "src/control/rank_table.hpp"
#include "src/control/tree/child_probes.hpp"

namespace weft::internal {

// Kinds of frames between leaders.
enum class ControlFrame : uint32_t {
    oob = 1,        // OobEntry, to the host of its target
    failed,         // rank, failure: the first error
    alive,          // empty
    ranks_left,     // entries of this host's ranks: the leader's ranks have left
    query_request,  // up: a rank requests the health of all ranks
    query,          // down: number
    report,         // up: number, entries of a subtree
    table,          // entries of ranks, for all hosts
    answer,         // down: number, entries of all queried ranks
    lost,           // host, text: its leader ended without a shutdown frame
    shutdown,       // entries of the sender's ranks, and of ended hosts behind it: the sender ends in order
};

// A neighbour that is silent for `limit_ms` by this clock counts as dead; 0: never.
struct Heartbeat {
    int64_t limit_ms;
    Clock clock = now_us;
};

// The time of the last tick, and how long the service thread had waited for a processor until then.
struct LastTick {
    int64_t at_us = 0, processor_wait_us = 0;
};

// Owned by Control, thread-bound to the service thread.
class TreeLinks {
  public:
    struct Handlers {
        std::function<void(int host, ControlFrame kind, ByteReader& content)> on_frame;
        // A link has ended; `why` is null if in order, after a shutdown frame.
        std::function<void(int host, const Status* why)> on_end;
        // A neighbour cannot be reached, or is silent.
        std::function<void(const Status& trouble)> on_trouble;
    };
    // `rank_table` outlives it.
    TreeLinks(std::shared_ptr<AcceptDispatcher> dispatcher, const net::Identity& identity, const RankTable& rank_table,
              int host, Heartbeat heartbeat, Handlers handlers);
    ~TreeLinks();

    void send(int host, ControlFrame kind, const ByteWriter& content = {});
    void flood(ControlFrame kind, const ByteWriter& content, int except = -1);
    // Logs a warning if this process has not run for long. Call it before tick(), and also when tick() is not called any
    // more.
    void detect_pause();
    // Sends heartbeats and finds silent neighbours.
    void tick();
    static constexpr int64_t tick_us = 250'000;  // between calls of these two

    // Ends all connections, also later ones, once their frames are sent.
    void finish();
    // The number of neighbours whose connection has not ended.
    int remaining() const;
    // All frames have reached the hosts that are not lost.
    bool arrived() const;
    bool ended(int host) const { return ended_.count(host) > 0; }
    bool linked(int host) const { return links_.count(host) > 0; }
    void visit(const std::function<void(int host)>& visitor) const;

  private:
    Service& service() { return dispatcher_->service(); }
    int64_t limit_us() const;
    static constexpr int64_t check_packets_us = 2'000'000, report_packets_us = 10'000'000;
    void check_packets(int64_t now);
    void connect_to_parent();
    void link(int host, Fd socket);
    void end(int host, const Status& why);

    int64_t next_check_packets_us_ = 0;
    std::shared_ptr<AcceptDispatcher> dispatcher_;
    net::Identity identity_;
    const RankTable* rank_table_;
    int host_;
    Heartbeat heartbeat_;
    Handlers handlers_;
    int64_t begun_us_;
    LastTick ticked_;
    std::unique_ptr<AsyncConnect> connect_;  // to the parent
    ChildProbes probes_;
    uint64_t retry_timer_ = 0;
    std::map<int, std::unique_ptr<ControlConnection>> links_;
    // Frames for neighbours that are not connected yet.
    std::map<int, std::vector<std::pair<ControlFrame, ByteWriter>>> early_;
    std::set<int> departed_;  // neighbours that sent a shutdown frame
    std::set<int> ended_;     // neighbours whose connection has ended
    bool finishing_ = false;
};

}  // namespace weft::internal
