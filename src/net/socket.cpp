#include "src/net/socket.hpp"

#include <netinet/tcp.h>

#include <cerrno>

#include "src/base/options.hpp"

namespace weft::internal::net {

namespace {

void set(int socket, int level, int option, int value) {
    // A socket works without any of these options, so a failure is not reported.
    (void)setsockopt(socket, level, option, &value, sizeof value);
}

}  // namespace

Result<Fd> open_stream(int family) {
    Fd stream = Fd::socket(family, SOCK_STREAM);
    if (!stream) return fail(error::system_descriptors, "a socket could not be made: {}", no_descriptor_text(errno));
    set(stream.number(), IPPROTO_TCP, TCP_NODELAY, 1);
    // Heartbeats find a cut network long before this; keepalive finds it where there are no heartbeats.
    // TCP_USER_TIMEOUT is not set: it would also end connections to living ranks that read late.
    set(stream.number(), SOL_SOCKET, SO_KEEPALIVE, 1);
    set(stream.number(), IPPROTO_TCP, TCP_KEEPIDLE, 30);
    set(stream.number(), IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set(stream.number(), IPPROTO_TCP, TCP_KEEPCNT, 6);
    if (const auto bytes = options().socket_buffer_bytes; bytes > 0) {
        set(stream.number(), SOL_SOCKET, SO_SNDBUF, int(bytes));
        set(stream.number(), SOL_SOCKET, SO_RCVBUF, int(bytes));
    }
    return stream;
}

Result<Fd> open_listener(const Address& address, int* error) {
    if (error) *error = 0;
    auto listener = open_stream(address.family());
    if (!listener) return listener;
    set(listener->number(), SOL_SOCKET, SO_REUSEADDR, 1);  // the last owner's connections may be in TIME_WAIT
    if (address.family() == AF_INET6) set(listener->number(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
    if (bind(listener->number(), address.raw(), address.raw_bytes()) != 0 || listen(listener->number(), 4096) != 0) {
        const int cause = errno;
        if (error) *error = cause;
        if (cause == EADDRINUSE)
            return fail(error::tcp_listen, "port {} is taken by another process of this host ({})", address.port(),
                        address.text());
        return fail(error::tcp_listen, "cannot listen at {}: {}", address.text(), errno_text(cause));
    }
    return listener;
}

Result<std::vector<Fd>> open_listeners(uint16_t port) {
    std::vector<Fd> opened;
    for (const int family : {AF_INET, AF_INET6}) {
        int error = 0;
        auto listener = open_listener(Address::any(family, port), &error);
        if (listener)
            opened.push_back(std::move(*listener));
        else if (error != EAFNOSUPPORT && error != EADDRNOTAVAIL)
            return listener.take_status();
    }
    if (opened.empty()) return fail(error::tcp_listen, "cannot listen on port {}: no address family works", port);
    return opened;
}

Status broken_connection(int error) {
    if (is_lost_descriptor(error))
        return fail(error::usage_closed_descriptor, "{} ({})", lost_descriptor_text, errno_text(error));
    return fail(error::tcp_broken, "the connection broke: {}", errno_text(error));
}

static Address name_of(int socket, int (*ask)(int, sockaddr*, socklen_t*)) {
    sockaddr_storage storage{};
    socklen_t bytes = sizeof storage;
    if (ask(socket, reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) return {};
    return Address::of(reinterpret_cast<sockaddr*>(&storage)).value_or(Address());
}
Address local_address(int socket) { return name_of(socket, getsockname); }
Address peer_address(int socket) { return name_of(socket, getpeername); }

Result<size_t> read_some(int socket, void* to, size_t bytes, bool* closed) {
    if (bytes == 0) return size_t(0);
    const ssize_t got = recv(socket, to, bytes, MSG_DONTWAIT);
    if (got > 0) return size_t(got);
    if (closed) *closed = got == 0;
    if (got == 0) return fail(error::tcp_broken, "the connection was closed");
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return size_t(0);
    return broken_connection(errno);
}

Result<size_t> write_some(int socket, const void* from, size_t bytes) {
    const ssize_t sent = send(socket, from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return size_t(sent);
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ENOBUFS) return size_t(0);
    return broken_connection(errno);
}

}  // namespace weft::internal::net
