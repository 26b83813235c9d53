// outgoing_connection.hpp: the client's side of Listener: connects to a process that has several addresses. It tries
// one after the other and keeps the first whose other end proves the secret and is the wanted process. Only that
// process learns the purpose.
#pragma once
#include <poll.h>

#include <optional>
#include <vector>

#include "src/base/fd.hpp"
#include "src/net/address.hpp"
#include "src/net/handshake.hpp"

namespace weft::internal::net {

// Owned by its creator, thread-bound. It has no deadline of its own: the caller of advance() has one.
class OutgoingConnection {
  public:
    // `source`: the own address to connect from, if several interfaces are used. Only addresses of its family are
    // tried, and none that WEFT_SOCKET_FAMILY excludes. Addresses are tried in call_order().
    OutgoingConnection(const Identity& identity, const Purpose& purpose, std::vector<Address> addresses,
                       std::optional<Address> source = {}, const TargetProcess& target = {});

    // Nothing yet; the connected socket, once; or a failure whose sentence has a reason for each address tried.
    // mismatch.version: another version of the library answered. If all addresses failed alike the failure has that id
    // (tcp.refused, tcp.secret, tcp.stranger, tcp.broken), otherwise tcp.refused.
    Result<std::optional<Fd>> advance();
    void add_descriptors(std::vector<pollfd>& list) const;
    // After a failure: a process accepted the connection and ended it without an answer. A crowded listener does so,
    // or one that this rank kept waiting; the caller may try again.
    bool closed_early() const { return closed_early_; }
    // After a failure: a process that speaks the handshake does not know the communicator. No process can prove that.
    bool unknown() const { return unknown_; }
    // After a failure: no process listens at any of the addresses that can be reached from here.
    bool refused() const { return refused_ && !failed_otherwise_; }
    // After a failure: at every address a process answered that knows the secret and is not the wanted one.
    bool misdirected() const { return misdirected_ && !given_up_otherwise_; }
    // Before the end: the addresses that have not answered, since when, and the failures of the others.
    std::string pending() const;
    // The address in use, or tried last.
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
    void give_up(Attempt& attempt, const Status& why);
    Result<bool> advance(Attempt& attempt);
    Status start_more(int64_t now);

    Identity identity_;
    Purpose purpose_;
    TargetProcess target_;
    std::vector<Attempt> attempts_;  // those still possible, in order of preference
    std::optional<Address> source_;
    Address peer_;
    std::string why_;                // for each address given up
    ErrorId error_ = ErrorId::none;  // of the addresses given up: their common id, or tcp.refused
    bool closed_early_ = false, unknown_ = false;
    bool refused_ = false, failed_otherwise_ = false;
    bool misdirected_ = false, given_up_otherwise_ = false;
    bool chosen_ = false;  // the only attempt left has proved the secret
};

}  // namespace weft::internal::net
