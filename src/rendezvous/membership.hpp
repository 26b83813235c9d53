// membership.hpp: the lasting part of a rendezvous of several hosts.
#pragma once
#include <memory>

#include "src/control/control.hpp"
#include "src/rendezvous/root_rendezvous.hpp"

namespace weft::internal {

// Kept by a process while it has ranks of a communicator over several hosts: the listener stays open for them, and the
// leader keeps the control. Thread-safe.
class Membership {
  public:
    Membership(std::shared_ptr<AcceptDispatcher> dispatcher, const net::Identity& identity,
               std::shared_ptr<Control> control, std::unique_ptr<RootRendezvous> root);
    ~Membership();
    const net::Identity& identity() const { return identity_; }
    // If this process leads its host: Control::report_failure().
    void report_failure();
    // The addresses of this process's listener.
    net::PackedAddresses listener_addresses() const { return net::pack_addresses(dispatcher_->listener().addresses()); }

  private:
    std::shared_ptr<AcceptDispatcher> dispatcher_;
    net::Identity identity_;
    std::unique_ptr<RootRendezvous> root_;  // lives until all hosts have received the rank table
    std::shared_ptr<Control> control_;
};

}  // namespace weft::internal
