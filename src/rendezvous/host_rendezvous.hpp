// host_rendezvous.hpp: one process's part of a rendezvous. The first process of a host that binds the abstract socket
// of the id becomes the leader, makes the segment and passes it to the others (segment_passing.hpp). If the ranks may be
// on several hosts, the leader also checks its host in at the root.
#pragma once
#include <poll.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "src/control/control.hpp"
#include "src/net/resolution.hpp"
#include "src/rendezvous/membership.hpp"
#include "src/rendezvous/root_rendezvous.hpp"
#include "src/rendezvous/segment_passing.hpp"
#include "src/rendezvous/unique_id.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

struct Leader {
    bool here = false;  // it is this process
    int pid = 0;        // of another process; 0: unknown
};

// Thread-safe: any rank thread of the process makes the steps, and the lock is held for one short step.
class HostRendezvous {
  public:
    // Shared by the process's ranks of one host, so that they share the segment's mapping, the lifetime lock and the
    // descriptors. A race detector needs the shared mapping too.
    static std::shared_ptr<HostRendezvous> of_process(const UniqueId& id, uint64_t host, int ranks);
    HostRendezvous(const UniqueId& id, uint64_t host, int ranks);
    ~HostRendezvous();

    // The segment once this process has it; null before.
    Result<std::shared_ptr<Segment>> advance();
    // Extends the rendezvous to other hosts if the id has a root. `roots`: this process becomes the root of a derived
    // id.
    Status meet_other_hosts(bool roots);
    // Whether the leader still needs set_machine() before meet_other_hosts(): the description of this machine (see
    // AgreedTexts), or the reason why there is none.
    bool needs_machine() {
        std::lock_guard lock(mutex_);
        return leader_.here && !machine_;
    }
    void set_machine(Result<MachineText> described) {
        std::lock_guard lock(mutex_);
        machine_ = std::move(described);
    }
    // The id was made on another host, so the ranks of this host cannot be all ranks.
    bool foreign() const { return id_.has_root() && !id_.derived() && id_.host() != host_; }
    // Sleeps until advance() may have work, for some milliseconds at most. Only one thread at a time wakes for the
    // descriptors: the other ranks of the process that have the segment sleep until all ranks have joined. False: there
    // is nothing to sleep for here, or another thread does it.
    bool wait(bool has_segment);
    // All ranks have joined: no other process is accepted.
    void close();
    // After the ranks of several hosts have joined.
    Result<std::shared_ptr<Membership>> membership();
    // The leader's process; 0: unknown, or this process.
    int leader_pid() {
        std::lock_guard lock(mutex_);
        return leader_.pid;
    }
    // The leader's reason why others are missing; empty on clients.
    std::string obstacle();
    // loopback_hint() about the root's name, once it is resolved.
    std::string root_hint() {
        std::lock_guard lock(mutex_);
        return root_hint_;
    }
    bool leads() {
        std::lock_guard lock(mutex_);
        return leader_.here;
    }

  private:
    bool role_known() const { return server_ || client_ || segment_; }
    int descriptors(std::vector<pollfd>& list);
    Status take_role();
    Status try_other_hosts(bool roots);
    std::optional<std::vector<net::Address>> find_root();

    std::mutex mutex_;
    std::atomic<bool> awaited_{false};  // a thread waits for the descriptors
    UniqueId id_;
    uint64_t host_;
    int ranks_;
    std::shared_ptr<Segment> segment_;
    std::optional<Result<MachineText>> machine_;
    std::optional<SegmentServer> server_;  // the leader's
    std::optional<SegmentClient> client_;  // another process's, until it has the segment
    Leader leader_;

    std::unique_ptr<RootRendezvous> root_;  // in rank 0's process, of a derived id
    std::shared_ptr<Control> control_;      // the leader's
    int64_t next_try_us_ = 0, next_root_us_ = 0;
    std::optional<net::Resolution> resolution_;  // of the root's name
    std::string obstacle_, root_hint_;
    std::weak_ptr<Membership> membership_;
};

}  // namespace weft::internal
