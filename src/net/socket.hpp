// socket.hpp: makes Weft's stream sockets, and reads and writes them without blocking.
#pragma once
#include <cstddef>

#include "src/base/fd.hpp"
#include "src/net/address.hpp"

namespace weft::internal::net {

// Non-blocking, closed on exec, with TCP_NODELAY, keepalive and WEFT_SOCKET_BUFFER_BYTES. Sockets that a listener
// accepts inherit its options.
Result<Fd> open_stream(int family);
// Bound to `address` and listening. On failure `error`, if given, receives errno; EADDRINUSE is the usual one.
Result<Fd> open_listener(const Address& address, int* error = nullptr);
// One for each address family that this host has, on all interfaces.
Result<std::vector<Fd>> open_listeners(uint16_t port);
Address local_address(int socket);
Address peer_address(int socket);

// The failure for errno of a connection that cannot be read or written: tcp.broken, or usage.closed-descriptor if the
// program closed its descriptor.
Status broken_connection(int error);
// The number of bytes read or written, 0 if the socket would block. Failures as broken_connection(), without the name
// of the peer. read_some() also fails if the peer closed the connection, and sets `closed`.
Result<size_t> read_some(int socket, void* to, size_t bytes, bool* closed = nullptr);
Result<size_t> write_some(int socket, const void* from, size_t bytes);

}  // namespace weft::internal::net
