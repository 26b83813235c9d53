// tcp_connection.hpp: the sockets between two ranks: one end connects, the other end's listener accepts.
// They serve one direction or both. With both, a rank's data carry the acknowledgement of what it received, which saves
// a packet per message.
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

// Owned by the sender and the receiver that use it. Thread-bound as they are; other threads may advance the listener.
class TcpConnection final : public Shared {
  public:
    // For the end that accepts: it gets its sockets by the token in its address.
    TcpConnection(const ConnectionOptions& options, std::shared_ptr<net::Listener> listener, uint64_t token);
    // For the end that connects, after set_target().
    explicit TcpConnection(const ConnectionOptions& options);
    TcpConnection(const TcpConnection&) = delete;
    TcpConnection& operator=(const TcpConnection&) = delete;
    ~TcpConnection() override;

    // Whether this end of a shared connection connects; the other end computes the opposite.
    static bool is_client(const ConnectionOptions& options) { return options.self < options.peer; }
    // `sources`: this host's addresses. With several stripes, stripe i uses interface i.
    void set_target(const ListenAddress& listen_address, const std::vector<net::Address>& sources, int stripes);

    bool connected() const { return connected_; }
    // Advances the connection by one step. A failure is final.
    Status connect();
    // Until connected: descriptors to poll while sleeping.
    void add_descriptors(std::vector<pollfd>& list) const;

    // Once connected.
    int stripes() const { return int(stripe_sockets_.size()); }
    int socket(int stripe) const { return stripe_sockets_[size_t(stripe)].socket.number(); }
    const net::Address& peer(int stripe) const { return stripe_sockets_[size_t(stripe)].peer; }
    // Shuts down sending: the peer reads the remaining bytes, then the end of the stream.
    void end_sending();

  private:
    struct StripeSocket {
        Fd socket;
        std::optional<net::WatchedSocket> watched;  // once connected
        net::Address peer;
        // For the end that connects.
        net::Purpose purpose;
        net::TargetProcess target;
        std::vector<net::Address> targets;
        std::optional<net::Address> source;
        std::optional<net::OutgoingConnection> outgoing;  // until connected
        int64_t retry_at_us = 0;                          // of the next attempt, if the peer closed the last one early
    };

    Status connect_as_client();
    Status accept_stripes();

    ConnectionOptions options_;
    std::shared_ptr<net::Listener> listener_;  // of the end that accepts
    uint64_t token_ = 0;
    // Of the end that accepts: empty until the first socket has announced their number.
    std::vector<StripeSocket> stripe_sockets_;
    size_t missing_ = 1;  // sockets not accepted yet
    bool connected_ = false;
    Status failure_;
};

}  // namespace weft::internal::tcp
