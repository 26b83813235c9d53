// host_rendezvous.hpp: the process's part of a rendezvous. The first process of a host that binds the abstract socket named by
// the id leads: it makes the segment and hands it to every process that proves to know the secret; the others are its
// clients. If the ranks may be on several hosts, the leader also meets the other hosts: it checks the host in at the root.
#pragma once
#include <poll.h>

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "src/control/control.hpp"
#include "src/net/resolution.hpp"
#include "src/rendezvous/handshake.hpp"
#include "src/rendezvous/root_rendezvous.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

// What a process keeps as long as it has ranks of a communicator over several hosts: its listener open for them, and, if it
// leads, the control. Thread-safe.
class Membership {
  public:
    Membership(std::shared_ptr<AcceptDispatcher> dispatcher, const net::Identity& identity,
               std::shared_ptr<Control> control, std::unique_ptr<RootRendezvous> root);
    ~Membership();
    const net::Identity& identity() const { return identity_; }
    // If this process leads its host: Control::tell_failure().
    void tell_failure();
    // Where this process lets others in.
    net::PackedAddresses listener_addresses() const { return net::pack_addresses(dispatcher_->listener().addresses()); }

  private:
    std::shared_ptr<AcceptDispatcher> dispatcher_;
    net::Identity identity_;
    std::unique_ptr<RootRendezvous> root_;  // lives until all hosts have the rank table
    std::shared_ptr<Control> control_;
};

// Its lock is held for short steps only; any rank thread of the process makes the steps.
class HostRendezvous {
  public:
    // Shared by the process's ranks of one host, so that they share the segment's mapping, the lifetime lock, the
    // descriptors, and, under a race detector, addresses.
    static std::shared_ptr<HostRendezvous> of_process(const UniqueId& id, uint64_t host, int ranks);
    HostRendezvous(const UniqueId& id, uint64_t host, int ranks);
    ~HostRendezvous();

    // The segment once this process has it.
    Result<std::shared_ptr<Segment>> advance();
    // Takes the rendezvous to other hosts, if the id has a root; at the latest when this host's ranks alone have not been
    // all for a moment. `roots`: the process shall be the root of a derived id.
    Status meet_other_hosts(bool roots);
    // Before it meets the other hosts: what the leader is to say of this machine, see AgreedTexts, or why it cannot. Once.
    bool needs_machine() {
        std::lock_guard lock(mutex_);
        return leads_ && !machine_;
    }
    void set_machine(Result<MachineText> described) {
        std::lock_guard lock(mutex_);
        machine_ = std::move(described);
    }
    // A different host than where the id was made, so this host's ranks cannot be all.
    bool foreign() const { return id_.has_root() && !id_.derived() && id_.host() != host_; }
    // What to wait for: descriptors, and how long at most.
    int descriptors(std::vector<pollfd>& list);
    // Everybody has joined: nobody else is let in.
    void close();
    // After the ranks of several hosts have met.
    Result<std::shared_ptr<Membership>> membership();
    // The process that leads; 0: not known, or this one.
    int leader_pid() {
        std::lock_guard lock(mutex_);
        return leader_pid_;
    }
    // What the leader knows of why others are missing; clients know nothing.
    std::string obstacle();
    // loopback_hint() about the root's name, once it is resolved.
    std::string root_hint() {
        std::lock_guard lock(mutex_);
        return root_hint_;
    }
    bool leads() {
        std::lock_guard lock(mutex_);
        return leads_;
    }

  private:
    struct Client {
        Fd socket;
        int pid = 0;
        HandshakeMessage challenge, hello;
        bool greeted = false;
        int64_t since_us = 0;
    };

    bool role_known() const { return listener_ || connection_ || segment_; }
    Status take_role();
    Status serve();
    Result<bool> serve(Client& client);
    void answer_last_clients();
    Status follow_leader();
    Status leader_failed(Status cause) const;
    Status try_other_hosts(bool roots);
    std::optional<std::vector<net::Address>> find_root();

    std::mutex mutex_;
    UniqueId id_;
    uint64_t host_;
    int ranks_;
    std::shared_ptr<Segment> segment_;
    bool leads_ = false;
    std::optional<Result<MachineText>> machine_;
    Fd listener_;  // the leader's
    std::list<Client> clients_;
    Fd connection_;  // a client's, to the leader
    HandshakeMessage hello_;
    bool proved_ = false;
    int leader_pid_ = 0;

    std::unique_ptr<RootRendezvous> root_;  // rank 0's process's, of a derived id; it hears the leader's last word
    std::shared_ptr<Control> control_;      // the leader's
    int64_t next_try_us_ = 0, next_root_us_ = 0;
    std::optional<net::Resolution> resolution_;  // of the root's name
    std::string obstacle_, root_hint_;
    std::weak_ptr<Membership> membership_;
};

}  // namespace weft::internal
