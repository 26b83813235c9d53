// control.hpp: what the leader of a host does for its ranks while a communicator has several hosts: checks them in at
// the root, writes the roster into the rows of the segment, and then, linked with the leaders of other hosts in a tree,
// carries letters, the first error, signs of life, and on request where everyone is. It acts on the service thread when
// the doorbell of the segment rings, when a frame comes and at a slow tick.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "src/bootstrap/link.hpp"
#include "src/bootstrap/roster.hpp"

namespace weft {

struct ControlSettings {
    int64_t heartbeat_ms = 10'000;   // a host silent for so long is dead; 0: never
    std::vector<net::Address> root;  // where to check in
    bool root_exists = false;        // it was there before anybody knew its address: being unknown there is final
    HostEntry self;                  // without members
    Fd news;                         // an eventfd
};

class Control {
  public:
    // Thread-safe.
    Control(std::shared_ptr<Reception> reception, std::shared_ptr<HostGroup> group, const net::Identity& identity,
            ControlSettings settings);
    ~Control();
    // What stands in the way of checking in, or who has not come; empty: nothing known.
    std::string obstacle() const;
    // Readable once the meeting has come to its end, whatever that is.
    int news() const { return settings_.news.number(); }

  private:
    // The meeting.
    void dial_root();
    void check_in(Fd socket);
    std::vector<RosterRank> newly_joined();
    int cores() const;
    void put_members(ByteWriter& to, const std::vector<RosterRank>& members) const;
    void on_root_frame(uint32_t kind, ByteReader& content);
    void settle(Roster roster);
    void set_obstacle(std::string text);
    void tell_news() const;
    // The tree.
    void dial_parent();
    void linked(int host, Fd socket);
    void send(int host, uint32_t kind, const ByteWriter& content);
    void flood(uint32_t kind, const ByteWriter& content, int except = -1);
    void on_frame(int host, uint32_t kind, ByteReader& content);
    void lost(int host, const Status& why);
    void mark_lost(int host, const std::string& sentence, int except);
    void mark_dead(int rank);
    // News.
    void look_around();
    void tick();
    void tell_abort(int except);
    void request_sweep();
    void sweep(uint32_t number);
    void report();
    void put_whereabouts(int rank, ByteWriter& to) const;
    void put_own_ranks();
    void neighbours(const std::function<void(int)>& visit) const;
    bool all_linked() const;
    void read_table(ByteReader& content);

    HostGroup& group() { return *group_; }
    Service& service() { return reception_->service(); }
    std::string host_text(int host) const;

    std::shared_ptr<Reception> reception_;
    std::shared_ptr<HostGroup> group_;
    net::Identity identity_;
    ControlSettings settings_;
    mutable std::mutex mutex_;  // of obstacle_
    std::string obstacle_;

    std::unique_ptr<Dial> dial_;  // to the root, then to the parent
    std::unique_ptr<Link> root_;
    std::set<int> checked_in_;
    int64_t retry_us_;

    Roster roster_;
    int host_ = -1;  // ours; from the roster on
    int64_t settled_us_ = 0, ticked_us_ = 0;
    std::map<int, std::unique_ptr<Link>> links_;
    std::map<int, std::vector<std::pair<uint32_t, ByteWriter>>>
        early_;                        // frames for neighbours that are not linked yet
    std::set<int> parted_;             // neighbours that said goodbye
    std::map<int, uint32_t> letters_;  // of local ranks, carried so far
    bool abort_told_ = false;
    bool goodbye_told_ = false;  // that one host has left is all that others need: calls cannot succeed any more
    uint32_t curious_ = 0;       // as last seen

    uint32_t sweep_number_ = 0;
    bool sweeping_ = false;
    int64_t swept_us_ = 0;
    std::set<int> reports_due_;
    ByteWriter gathered_;
    uint32_t gathered_count_ = 0;
    uint64_t retry_timer_ = 0, tick_timer_ = 0, sweep_timer_ = 0;
};

}  // namespace weft
