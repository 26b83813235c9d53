// cable.hpp: the sockets that join two ranks, and how they come to be: one end calls, the other's listener lets it in. A
// cable carries one connection, or one each way: then what a rank sends acknowledges what it received, which saves a
// packet for each message.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/net/outgoing_connection.hpp"
#include "src/net/listener.hpp"
#include "src/net/lost_packets.hpp"
#include "transports/tcp/message.hpp"

namespace weft::internal::tcp {

// Held by the sender and the receiver that use it. Thread-bound as they are; other threads may step the listener.
class Cable final : public Shared {
  public:
    // For who is called: claims its sockets by the token of the address that it gave.
    Cable(const ConnectionOptions& options, std::shared_ptr<net::Listener> listener, uint64_t token);
    // For who calls, as soon as dial() says target.
    explicit Cable(const ConnectionOptions& options);
    Cable(const Cable&) = delete;
    Cable& operator=(const Cable&) = delete;
    ~Cable() override;

    // Which end of a shared cable calls; both must agree.
    static bool calls(const ConnectionOptions& options) { return options.self < options.peer; }
    // `sources`: own addresses; if there are several stripes, stripe i comes from the one of interface i.
    void dial(const Place& place, const std::vector<net::Address>& sources, int stripes);

    bool connected() const { return connected_; }
    // One step; connected() says how far it is.
    Status connect();
    // Until connected: what a sleeper waits for.
    void add_descriptors(std::vector<pollfd>& list) const;

    // Once connected.
    int stripes() const { return int(wires_.size()); }
    int socket(int stripe) const { return wires_[size_t(stripe)].socket.number(); }
    const net::Address& peer(int stripe) const { return wires_[size_t(stripe)].peer; }
    // Nothing more will be sent: the peer reads what there was, then the end.
    void end_sending();

  private:
    struct Wire {
        Fd socket;
        std::optional<net::WatchedSocket> watched;  // once connected
        net::Address peer;
        // Of who calls.
        net::Purpose purpose;
        net::TargetProcess target;
        std::vector<net::Address> targets;
        std::optional<net::Address> source;
        std::optional<net::OutgoingConnection> call;  // until connected
        int64_t again_us = 0;           // when the next call is due, if the last was turned away
    };

    Status call();
    Status accept();

    ConnectionOptions options_;
    std::shared_ptr<net::Listener> listener_;  // of who is called
    uint64_t token_ = 0;
    std::vector<Wire> wires_;  // of who is called: empty until the first has come and said how many there are
    size_t missing_ = 1;       // of them
    bool connected_ = false;
    weftResult_t failure_ = weftSuccess;
    std::string why_;
};

}  // namespace weft::internal::tcp
