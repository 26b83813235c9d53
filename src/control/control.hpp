// control.hpp: what the leader of a host does for its ranks while a communicator has several hosts: checks them in at
// the root, writes the rank table into the rows of the segment, and then, linked with the leaders of other hosts in a tree,
// carries connection info, the first error, signs of life, and on request where everyone is. It acts on the service thread when
// the doorbell of the segment rings, when a frame comes and at a slow tick.
//
// Connection info of other hosts may pass through this one, so it goes on when its own ranks have left, until it is the last or
// has one neighbour only. The tree is taken down from its leaves.
#pragma once
#include <map>
#include <memory>
#include <set>

#include "src/control/check_in_client.hpp"
#include "src/control/health_table.hpp"
#include "src/control/tree_links.hpp"

namespace weft::internal {

struct ControlSettings {
    int64_t heartbeat_ms = 10'000;  // a host silent for so long is dead; 0: never
    CheckInSettings check_in;
    Fd settled_event;  // an eventfd
};

class Control {
  public:
    // Thread-safe.
    Control(std::shared_ptr<AcceptDispatcher> dispatcher, std::shared_ptr<Segment> segment,
            const net::Identity& identity, ControlSettings settings);
    ~Control();
    // The leader's ranks have left. Its control stays as long as other hosts, or other processes of this one, may need
    // it, owned by nobody else; at the end of the process that is bounded. Returns at once. Thread-safe.
    static void leave(std::shared_ptr<Control> control);
    // The end of the process: returns when those that have left are not needed any more, after some seconds at most.
    static void await_shutdown();
    // Call it before an error is returned to the caller, whose process may end then. Sends what the rows tell of the
    // error (ReturnedError). Returns when the neighbouring hosts have it, or after a second. Thread-safe.
    void tell_failure();
    // What stands in the way of checking in, or who has not come; empty: nothing known. Thread-safe.
    std::string obstacle();
    // Readable once the rendezvous has come to its end, whatever that is.
    int settled_event() const { return health_.number(); }

  private:
    void settle(RankTable rank_table);
    bool is_here(const HostEntry& host) const;
    Status write_rows();
    void signal_settled() const;
    void on_frame(int host, ControlFrame kind, ByteReader& content);
    bool leader_has_left(int host) const;
    std::vector<int> ranks_of_leader(int host) const;
    void mark_lost(int host, const std::string& sentence, int except);
    void look_around();
    void look_first();
    void carry();
    void forward(const Segment::OobEntry& entry);
    void tell_unreachable();
    void tick();
    void look_for_the_dead();
    void tell_abort(int except);
    void send_returned_errors();
    void go_if_done();
    bool needed() const;
    bool in_calls() const;
    bool has_kernels(int rank) const;
    void poll_at_exit();
    void end();

    Service& service() { return dispatcher_->service(); }

    std::shared_ptr<AcceptDispatcher> dispatcher_;
    std::shared_ptr<Segment> segment_;
    net::Identity identity_;
    int64_t heartbeat_ms_;
    Fd health_;
    CheckInClient check_in_;

    // From the rank table on.
    RankTable rank_table_;
    int host_ = -1;  // ours
    std::unique_ptr<TreeLinks> tree_links_;
    std::unique_ptr<HealthTable> health_table_;
    std::map<int, uint32_t> oob_sent_;  // of local ranks, carried so far
    std::set<int> unreachable_;         // ranks elsewhere for whom there is connection info and no way
    uint64_t unreachable_timer_ = 0;
    bool abort_told_ = false;
    int64_t failure_told_us_ = 0;
    bool ranks_left_sent_ =
        false;  // that one host has left goes to all: collectives cannot succeed any more; who asks is told the rest
    std::map<int, uint64_t> returned_errors_sent_;  // ReturnedError::calls of local ranks, as others know them
    uint32_t health_requests_ = 0;                  // as last seen
    uint64_t tick_timer_ = 0;

    bool leaving_ = false, ended_ = false;
    int64_t finishing_since_us_ = 0;  // 0: not yet
    int64_t exiting_since_us_ = 0;    // since when the process wants to end; 0: it does not
    uint64_t exit_timer_ = 0;
};

}  // namespace weft::internal
