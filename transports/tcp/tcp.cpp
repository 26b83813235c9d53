// tcp.cpp: the row of TCP. The receiver listens with the process's listener, whose addresses are in its blob, and the
// sender connects. Two connections, one in each direction, share a TCP connection that one sender opens.
#include "transports/tcp/tcp.hpp"

#include "src/base/options.hpp"
#include "transports/tcp/receiver.hpp"
#include "transports/tcp/sender.hpp"

namespace weft::internal {

namespace tcp {

namespace {

// The number of sockets of this end: one for each interface that the user named. Without names it is one, because
// interfaces may have very different speeds.
int interfaces_of(const std::vector<net::Address>& addresses) {
    if (options().socket_ifname.empty() || options().socket_ifname[0] == '^') return 1;
    int count = 1;
    for (const net::Address& address : addresses) count = std::max(count, address.interface() + 1);
    return std::min(count, stripes_max);
}

class TcpTransport final : public Transport {
  public:
    TcpTransport() : Transport("tcp", capabilities(Capability::posts, Capability::sleeps, Capability::remote)) {}
    std::string available() const override;
    std::vector<Rail> rails() const override;
    std::string can_connect(const ConnectionOptions& options) const override {
        return options.identity == nullptr ? "the communicator has no identity to prove on a network" : "";
    }
    Result<std::unique_ptr<Receiver>> listen(const ConnectionOptions& options, Blob& address) const override;
    Result<std::unique_ptr<Sender>> connect(const ConnectionOptions& options, const Blob& address) const override;
};

Result<std::unique_ptr<Receiver>> TcpTransport::listen(const ConnectionOptions& options, Blob& address) const {
    if (options.depth < 1 || options.identity == nullptr)
        return fail(error::internal_state, "rank {} cannot listen to rank {} over tcp with {} slots", options.self,
                    options.peer, options.depth);
    auto listener = net::Listener::of_process();
    if (!listener) return listener.take_status();
    ListenAddress listen_address{
        .depth = options.depth, .slot_bytes = options.slot_bytes, .addresses = (*listener)->addresses()};
    listen_address.stripes = interfaces_of(listen_address.addresses);
    listen_address.token = ListenAddress::make_token();
    address = listen_address.blob();
    auto connection = options.shared && TcpConnection::is_client(options)
                          ? std::make_shared<TcpConnection>(options)
                          : std::make_shared<TcpConnection>(options, std::move(*listener), listen_address.token);
    if (options.shared) *options.shared = connection;
    return std::unique_ptr<Receiver>(new TcpReceiver(options, std::move(connection)));
}

Result<std::unique_ptr<Sender>> TcpTransport::connect(const ConnectionOptions& options, const Blob& address) const {
    const auto listen_address = ListenAddress::of(address);
    if (!listen_address || listen_address->depth != options.depth || listen_address->slot_bytes != options.slot_bytes)
        return fail(error::mismatch_algorithm,
                    "rank {} listens to rank {} over tcp with {} slots of {} bytes, but rank {} expects {} of {}: the "
                    "ranks chose differently",
                    options.peer, options.self, listen_address ? listen_address->depth : 0,
                    listen_address ? listen_address->slot_bytes : 0, options.self, options.depth, options.slot_bytes)
            .about({.rank = options.peer, .peer = options.self});
    std::shared_ptr<TcpConnection> connection;
    if (options.shared) connection = std::dynamic_pointer_cast<TcpConnection>(*options.shared);
    if (!connection || TcpConnection::is_client(options)) {
        auto own = net::local_addresses();
        if (!own) return own.take_status();
        if (!connection) connection = std::make_shared<TcpConnection>(options);
        connection->set_target(*listen_address, *own, std::min(listen_address->stripes, interfaces_of(*own)));
    }
    std::unique_ptr<Sender> sender(new TcpSender(options, std::move(connection)));
    auto begun = sender->progress();
    if (!begun) return begun.take_status();
    return sender;
}

std::string TcpTransport::available() const {
    const auto addresses = net::local_addresses();
    return addresses ? std::string() : addresses.status().sentence();
}

std::vector<Rail> TcpTransport::rails() const {
    std::vector<Rail> rails;
    const auto addresses = net::local_addresses();
    if (!addresses) return rails;
    for (const net::Address& address : *addresses) {
        const std::string interface = net::interface_name(address);
        rails.push_back(
            {.name = interface, .detail = address.text(), .mbps = interface.empty() ? 0 : net::link_mbps({interface})});
    }
    return rails;
}

}  // namespace

}  // namespace tcp

const Transport& tcp_transport() {
    static const tcp::TcpTransport row;
    return row;
}

}  // namespace weft::internal
