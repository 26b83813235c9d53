// outgoing_connection.hpp: the other side of Listener: connects to a process that can be reached at several addresses. One after the other
// is tried; the first whose other end proves the secret, and is the process that is meant, wins. Only it is told what
// the call is for.
#pragma once
#include <poll.h>

#include <optional>
#include <vector>

#include "src/base/fd.hpp"
#include "src/net/address.hpp"
#include "src/net/handshake.hpp"

namespace weft::internal::net {

// Owned by who made it, thread-bound. Has no deadline of its own: whoever advances it has.
class OutgoingConnection {
  public:
    // `source`: the own address to call from, where several interfaces are used; only addresses of its family are
    // called, and none that WEFT_SOCKET_FAMILY rules out. Addresses are called in call_order().
    OutgoingConnection(const Identity& identity, const Purpose& purpose, std::vector<Address> addresses,
                       std::optional<Address> source = {}, const TargetProcess& target = {});

    // Nothing yet; the connected socket, once; or why there is none, for each address tried. weftMismatch: another
    // version of the library answered; weftRemoteError: nobody answered who knows the secret; weftSystemError.
    Result<std::optional<Fd>> advance();
    void add_descriptors(std::vector<pollfd>& list) const;
    // After a failure: somebody accepted the connection and ended it without an answer. A listener that is crowded, or that
    // we kept waiting, does so; it may be tried again.
    bool closed_early() const { return closed_early_; }
    // After a failure: somebody who speaks the handshake does not know the communicator. Nobody can prove that.
    bool unknown() const { return unknown_; }
    // After a failure: nobody listens at any of the addresses that can be reached from here.
    bool refused() const { return refused_ && !failed_otherwise_; }
    // After a failure: a process that knows the secret and is not the one that is meant answered at every address.
    bool misdirected() const { return misdirected_ && !given_up_otherwise_; }
    // While nothing has come of it: which addresses keep us waiting, since when, and what became of the others.
    std::string pending() const;
    // TargetProcess we are talking to, or tried last.
    const Address& peer() const { return peer_; }

  private:
    struct Attempt {
        explicit Attempt(const Address& where) : address(where) {}
        Address address;
        Fd socket;
        bool started = false;
        bool connected = false;
        std::optional<ClientHandshake> handshake;
        int64_t since_us = 0;
        int64_t connected_us = 0;
    };
    Status start(Attempt& attempt, int64_t now);
    Status failed_to_connect(int error);
    void give_up(Attempt& attempt, const std::string& why);
    Result<bool> advance(Attempt& attempt);
    Status start_more(int64_t now);

    Identity identity_;
    Purpose purpose_;
    TargetProcess target_;
    std::vector<Attempt> attempts_;  // those still possible, in order of preference
    std::optional<Address> source_;
    Address peer_;
    std::string why_;  // for each address given up
    bool closed_early_ = false, unknown_ = false;
    bool refused_ = false, failed_otherwise_ = false;
    bool misdirected_ = false, given_up_otherwise_ = false;
    bool chosen_ = false;  // the one attempt left has proved the secret
};

}  // namespace weft::internal::net
