// neighbours.hpp: a leader's links to the leaders next to it in the tree of hosts: it calls its parent, its children
// call it. Frames for a neighbour that is not linked yet wait for it. Thread-bound to the service thread.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "src/bootstrap/link.hpp"
#include "src/bootstrap/roster.hpp"

namespace weft {

// Kinds of frames between leaders.
enum class News : uint32_t {
    letter = 1,     // HostGroup::Letter, to the host of its addressee
    failed,         // code, rank, text: the first error
    alive,          // nothing
    goodbye,        // this host's leader leaves in order: entries of its ranks
    sweep_request,  // up: somebody wants to know where everyone is
    sweep,          // down: number
    report,         // up: number, entries of a subtree
    table,          // entries of ranks, for all
    lost,           // host, text: its leader is gone without goodbye
};

class Neighbours {
  public:
    struct Handlers {
        std::function<void(int host, News kind, ByteReader& content)> on_frame;
        std::function<void(int host, const Status& why)> on_lost;  // a link ended without goodbye
        std::function<void(const std::string& sentence)> on_trouble;
    };
    // `roster` outlives it.
    Neighbours(std::shared_ptr<Reception> reception, const net::Identity& identity, const Roster& roster, int host,
               int64_t heartbeat_ms, Handlers handlers);
    ~Neighbours();

    void send(int host, News kind, const ByteWriter& content = {});
    void flood(News kind, const ByteWriter& content, int except = -1);
    // A neighbour's goodbye came: the end of its link is none that is told.
    void part_from(int host) { parted_.insert(host); }
    // Says goodbye to all.
    void leave(const ByteWriter& goodbye);
    // Says that we live, and finds who does not.
    void tick();
    static constexpr int64_t tick_us = 250'000;  // between calls of it

    bool here(int host) const { return links_.count(host) && !parted_.count(host); }
    bool all_linked() const;
    void visit(const std::function<void(int host)>& visitor) const;

  private:
    Service& service() { return reception_->service(); }
    void dial_parent();
    void linked(int host, Fd socket);

    std::shared_ptr<Reception> reception_;
    net::Identity identity_;
    const Roster* roster_;
    int host_;
    int64_t heartbeat_ms_;
    Handlers handlers_;
    int64_t begun_us_, ticked_us_ = 0;
    std::unique_ptr<Dial> dial_;  // to the parent
    uint64_t retry_timer_ = 0;
    std::map<int, std::unique_ptr<Link>> links_;
    // Frames for neighbours that are not linked yet.
    std::map<int, std::vector<std::pair<News, ByteWriter>>> early_;
    std::set<int> parted_;  // neighbours that said goodbye, or are lost
};

}  // namespace weft
