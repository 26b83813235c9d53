// socket.hpp: how Weft's stream sockets are made, and reading and writing them without ever blocking.
#pragma once
#include <cstddef>

#include "src/base/fd.hpp"
#include "src/net/address.hpp"

namespace weft::internal::net {

// Non-blocking, closed on exec, without delay, with keepalive and WEFT_SOCKET_BUFFER_BYTES. What a listener has, the
// sockets that it accepts inherit.
Result<Fd> open_stream(int family);
// Bound to `address` and listening. `error` of a failure, if asked for, is errno's: EADDRINUSE is the usual one.
Result<Fd> open_listener(const Address& address, int* error = nullptr);
Address local_address(int socket);
Address peer_address(int socket);

// The status for errno of a connection that cannot be read or written: weftRemoteError, or weftInvalidUsage if its
// descriptor is no longer ours.
Status broken_connection(int error);
// How many bytes went, 0 if the socket would block. weftRemoteError if the connection is broken or, in reading, was
// closed (`closed` says so); the sentence says how, not by whom.
Result<size_t> read_some(int socket, void* to, size_t bytes, bool* closed = nullptr);
Result<size_t> write_some(int socket, const void* from, size_t bytes);

}  // namespace weft::internal::net
