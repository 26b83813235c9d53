// control.hpp: the control plane of a host's leader, for a communicator on several hosts. It checks the host's ranks in
// at the root and writes the rank table into the segment. Then it exchanges frames with the leaders of other hosts over
// a tree of connections: out-of-band entries, the first error, heartbeats, and the health of ranks on request. It runs
// on the service thread when the segment's doorbell rings, when a frame comes, and at a slow tick.
//
// Entries of other hosts may pass through this one, so it continues after its own ranks have left, until it has at most
// one neighbour. The tree ends from its leaves.
#pragma once
#include <memory>

#include "src/control/check_in_client.hpp"
#include "src/control/failure_sender.hpp"
#include "src/control/health_table.hpp"
#include "src/control/oob_forwarder.hpp"
#include "src/control/tree/tree_links.hpp"

namespace weft::internal {

struct ControlSettings {
    int64_t heartbeat_ms = 10'000;  // a host that is silent for this long counts as dead; 0: never
    CheckInSettings check_in;
    Fd settled_event;      // an eventfd
    Clock clock = now_us;  // of heartbeats, and of patience at the end
};

class Control {
  public:
    // Thread-safe.
    Control(std::shared_ptr<AcceptDispatcher> dispatcher, std::shared_ptr<Segment> segment,
            const net::Identity& identity, ControlSettings settings);
    ~Control();
    // The leader's ranks have left. The control keeps itself alive while other hosts, or other processes of this host,
    // may need it; the end of the process bounds that. Returns at once. Thread-safe.
    static void leave(std::shared_ptr<Control> control);
    // For the end of the process: returns when the controls that have left are not needed any more, after some seconds
    // at most.
    static void await_shutdown();
    // Call it before an error is returned to the caller, whose process may then end. Sends the ranks' ReturnedError
    // records. Returns when the neighbouring hosts have them, or after a second. Thread-safe.
    void report_failure();
    // The obstacle to checking in, or the missing ranks; empty: unknown. Thread-safe.
    std::string obstacle();
    // Readable once the rendezvous has ended, with success or failure.
    int settled_event() const { return health_.number(); }

  private:
    void settle(RankTable rank_table);
    void signal_settled() const;
    void on_frame(int host, ControlFrame kind, ByteReader& content);
    void on_end(int host, const Status* why);
    void mark_lost(int host, const std::string& sentence, int except);
    void read_segment();
    void read_before_report();
    void send_pending();
    void report_unreachable();
    void tick();
    void find_dead_ranks();
    void send_abort(int except);
    void go_if_done();
    bool needed() const;
    void poll_at_exit();
    void end();

    Service& service() { return dispatcher_->service(); }

    std::shared_ptr<AcceptDispatcher> dispatcher_;
    std::shared_ptr<Segment> segment_;
    net::Identity identity_;
    Heartbeat heartbeat_;
    Fd health_;
    CheckInClient check_in_;

    // Valid once the rank table has come.
    RankTable rank_table_;
    int host_ = -1;  // this host
    std::unique_ptr<TreeLinks> tree_links_;
    std::unique_ptr<HealthTable> health_table_;
    std::unique_ptr<FailureSender> failure_sender_;
    std::unique_ptr<OobForwarder> oob_forwarder_;
    bool ranks_left_sent_ = false;  // the first host that has left is reported to all: collectives cannot succeed now
    uint32_t health_requests_ = 0;  // as last seen
    uint64_t tick_timer_ = 0;

    bool leaving_ = false, ended_ = false;
    int64_t finishing_since_us_ = 0;  // 0: not yet
    int64_t exiting_since_us_ = 0;    // since when the process is ending; 0: it is not
    uint64_t exit_timer_ = 0;
};

}  // namespace weft::internal
