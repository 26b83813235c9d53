#include "src/net/lost_packets.hpp"

#include <fmt/core.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>
#include <mutex>
#include <optional>
#include <set>

#include "src/base/per_process.hpp"
#include "src/net/socket.hpp"

namespace weft::internal::net {
namespace {

// Every network takes packets of this size, by IPv6's rule.
constexpr uint32_t bytes_always_taken = 1280;
constexpr uint32_t usual_mtu = 1500;  // of Ethernet; a larger one must be set on every device of the path
// Retransmissions without an acknowledgement. The first comes after 0.2 s or more, each next after twice the time.
constexpr int retransmissions_least = 2;

// The name of the interface with this address; empty: none has it.
std::string interface_of(const Address& address) {
    for (const InterfaceAddress& own : addresses_of_this_host())
        if (own.address.with_port(0).text() == address.with_port(0).text()) return own.interface;
    return {};
}

// The kernel's tcp_info goes on behind the C library's.
struct TcpState {
    tcp_info info{};
    std::byte more[256] = {};                       // older kernels fill less of it
    static constexpr size_t out_of_order_at = 224;  // tcpi_rcv_ooopack
    uint32_t out_of_order() const {
        uint32_t packets = 0;
        memcpy(&packets, reinterpret_cast<const std::byte*>(this) + out_of_order_at, sizeof packets);
        return packets;
    }
};

// Nothing: it is not connected any more.
std::optional<TcpState> tcp_state_of(int socket) {
    TcpState state;
    socklen_t bytes = sizeof state;
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &state, &bytes) != 0 || state.info.tcpi_state != TCP_ESTABLISHED)
        return {};
    return state;
}

std::string advice(const Address& own, const Address& peer, const tcp_info& info) {
    const std::string interface = interface_of(own);
    const bool of_6 = peer.family() == AF_INET6;
    return fmt::format(
        "the MTU{} ({}) may be larger than the network takes; try `ping {}-M do -s {} {}`, and lower the MTU",
        interface.empty() ? "" : " of interface " + interface, info.tcpi_pmtu, of_6 ? "-6 " : "",
        info.tcpi_pmtu - (of_6 ? 48 : 28), peer.with_port(0).text());
}

struct Watched {
    std::mutex mutex;
    std::set<int> sockets;
};
Watched& watched() {
    static PerProcess<Watched> processes;
    return processes.get();
}

}  // namespace

std::string lost_packets(int socket) {
    const std::optional<TcpState> state = tcp_state_of(socket);
    int unacknowledged = 0;
    if (!state || ioctl(socket, SIOCOUTQ, &unacknowledged) != 0) return {};
    if (state->info.tcpi_retransmits < retransmissions_least || unacknowledged <= int(bytes_always_taken)) return {};
    if (state->info.tcpi_pmtu <= bytes_always_taken) return {};
    const Address peer = peer_address(socket);
    return fmt::format(
        "large packets from {} to {} do not arrive, although small ones do ({} bytes wait, sent {} times again): {}",
        local_address(socket).text(), peer.text(), unacknowledged, int(state->info.tcpi_retransmits),
        advice(local_address(socket), peer, state->info));
}

std::string missing_packets(int socket) {
    const std::optional<TcpState> state = tcp_state_of(socket);
    if (!state || (state->out_of_order() == 0 && state->info.tcpi_pmtu <= usual_mtu)) return {};
    const Address peer = peer_address(socket);
    return fmt::format("large packets from {} may be lost: {}", peer.text(),
                       advice(local_address(socket), peer, state->info));
}

WatchedSocket::WatchedSocket(int socket) : socket_(socket) {
    std::lock_guard lock(watched().mutex);
    watched().sockets.insert(socket);
}

WatchedSocket::~WatchedSocket() {
    std::lock_guard lock(watched().mutex);
    watched().sockets.erase(socket_);
}

std::string lost_packets_of_process() {
    std::lock_guard lock(watched().mutex);
    for (const int socket : watched().sockets)
        if (std::string lost = lost_packets(socket); !lost.empty()) return lost;
    return {};
}

}  // namespace weft::internal::net
