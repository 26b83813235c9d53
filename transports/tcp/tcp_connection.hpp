// tcp_connection.hpp: the sockets that join two ranks, and how they come to be: one end calls, the other's listener lets it in. A
// connection carries one connection, or one each way: then what a rank sends acknowledges what it received, which saves a
// packet for each message.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/net/listener.hpp"
#include "src/net/lost_packets.hpp"
#include "src/net/outgoing_connection.hpp"
#include "transports/tcp/message.hpp"

namespace weft::internal::tcp {

// Held by the sender and the receiver that use it. Thread-bound as they are; other threads may step the listener.
class TcpConnection final : public Shared {
  public:
    // For who is called: claims its sockets by the token of the address that it gave.
    TcpConnection(const ConnectionOptions& options, std::shared_ptr<net::Listener> listener, uint64_t token);
    // For who calls, as soon as set_target() says target.
    explicit TcpConnection(const ConnectionOptions& options);
    TcpConnection(const TcpConnection&) = delete;
    TcpConnection& operator=(const TcpConnection&) = delete;
    ~TcpConnection() override;

    // Which end of a shared connection calls; both must agree.
    static bool is_client(const ConnectionOptions& options) { return options.self < options.peer; }
    // `sources`: own addresses; if there are several stripes, stripe i comes from the one of interface i.
    void set_target(const ListenAddress& listen_address, const std::vector<net::Address>& sources, int stripes);

    bool connected() const { return connected_; }
    // One step; connected() says how far it is.
    Status connect();
    // Until connected: what a sleeper waits for.
    void add_descriptors(std::vector<pollfd>& list) const;

    // Once connected.
    int stripes() const { return int(stripe_sockets_.size()); }
    int socket(int stripe) const { return stripe_sockets_[size_t(stripe)].socket.number(); }
    const net::Address& peer(int stripe) const { return stripe_sockets_[size_t(stripe)].peer; }
    // Nothing more will be sent: the peer reads what there was, then the end.
    void end_sending();

  private:
    struct StripeSocket {
        Fd socket;
        std::optional<net::WatchedSocket> watched;  // once connected
        net::Address peer;
        // Of who calls.
        net::Purpose purpose;
        net::TargetProcess target;
        std::vector<net::Address> targets;
        std::optional<net::Address> source;
        std::optional<net::OutgoingConnection> outgoing;  // until connected
        int64_t retry_at_us = 0;                          // when the next call is due, if the last was turned away
    };

    Status connect_as_client();
    Status accept_stripes();

    ConnectionOptions options_;
    std::shared_ptr<net::Listener> listener_;  // of who is called
    uint64_t token_ = 0;
    std::vector<StripeSocket>
        stripe_sockets_;  // of who is called: empty until the first has come and said how many there are
    size_t missing_ = 1;  // of them
    bool connected_ = false;
    weftResult_t failure_ = weftSuccess;
    std::string why_;
};

}  // namespace weft::internal::tcp
