// tree_links.hpp: a leader's links to the leaders next to it in the tree of hosts: it calls its parent, its children
// call it. Frames for a neighbour that is not linked yet wait for it. Thread-bound to the service thread.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "src/control/control_connection.hpp"
#include "src/control/rank_table.hpp"

namespace weft::internal {

// Kinds of frames between leaders.
enum class ControlFrame : uint32_t {
    oob = 1,        // Segment::OobEntry, to the host of its addressee
    failed,         // code, rank, text: the first error
    alive,          // nothing
    ranks_left,     // entries of this host's ranks: its leader's have left
    query_request,  // up: somebody wants to know where everyone is
    query,          // down: number
    report,         // up: number, entries of a subtree
    table,          // entries of ranks, for all
    answer,         // down: number, entries of all that were asked
    lost,           // host, text: its leader is gone without shutdown frame
    shutdown,       // entries of the sender's ranks, and of those behind it that have ended: its own end is in order
};

class TreeLinks {
  public:
    struct Handlers {
        std::function<void(int host, ControlFrame kind, ByteReader& content)> on_frame;
        // A link has ended; `why` is null if in order, after a shutdown frame.
        std::function<void(int host, const Status* why)> on_end;
        std::function<void(const std::string& sentence)> on_trouble;
    };
    // `rank_table` outlives it.
    TreeLinks(std::shared_ptr<AcceptDispatcher> dispatcher, const net::Identity& identity, const RankTable& rank_table,
              int host, int64_t heartbeat_ms, Handlers handlers);
    ~TreeLinks();

    void send(int host, ControlFrame kind, const ByteWriter& content = {});
    void flood(ControlFrame kind, const ByteWriter& content, int except = -1);
    // Says so if this process has not run for long; before tick(), and also when that is not called any more.
    void notice_sleep();
    // Says that we live, and finds who does not.
    void tick();
    static constexpr int64_t tick_us = 250'000;  // between calls of these

    // Ends all links once what was sent is out, also those that come yet.
    void finish();
    // Those of whom nothing is to be expected any more do not count.
    int remaining() const;
    // Everything that was sent has come to its host, as far as it is not lost.
    bool arrived() const;
    bool ended(int host) const { return ended_.count(host) > 0; }
    bool linked(int host) const { return links_.count(host) > 0; }
    void visit(const std::function<void(int host)>& visitor) const;

  private:
    Service& service() { return dispatcher_->service(); }
    int64_t limit_us() const;
    static constexpr int64_t look_at_packets_us = 2'000'000, tell_of_packets_us = 10'000'000;
    void look_at_packets(int64_t now);
    void connect_to_parent();
    void link(int host, Fd socket);
    void end(int host, const Status& why);

    int64_t next_look_at_packets_us_ = 0;
    std::shared_ptr<AcceptDispatcher> dispatcher_;
    net::Identity identity_;
    const RankTable* rank_table_;
    int host_;
    int64_t heartbeat_ms_;
    Handlers handlers_;
    int64_t begun_us_, ticked_us_;
    int64_t processor_wait_us_ = 0;          // of the service thread, at the last tick
    std::unique_ptr<AsyncConnect> connect_;  // to the parent
    uint64_t retry_timer_ = 0;
    std::map<int, std::unique_ptr<ControlConnection>> links_;
    // Frames for neighbours that are not linked yet.
    std::map<int, std::vector<std::pair<ControlFrame, ByteWriter>>> early_;
    std::set<int> departed_;  // neighbours that sent a shutdown frame
    std::set<int> ended_;     // neighbours whose link has ended
    bool finishing_ = false;
};

}  // namespace weft::internal
