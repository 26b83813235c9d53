// ends.hpp: shared by the tests of src/net: identities, a listener on loopback, sockets of strangers.
#pragma once
#include <poll.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "src/net/frames.hpp"
#include "src/net/listener.hpp"
#include "src/net/outgoing_connection.hpp"
#include "src/net/socket.hpp"
#include "tests/catch.hpp"
#include "tests/subprocess.hpp"

namespace weft::internal::test {

inline net::Identity fresh_identity() {
    net::Secret secret;
    net::random_bytes(secret.key.data(), secret.key.size());
    return net::Identity::of(secret);
}

inline net::Address loopback(const std::string& text = "127.0.0.1") {
    auto address = net::Address::parse(text);
    REQUIRE(address.ok());
    return *address;
}

// False in some containers.
inline bool has_ipv6() { return net::open_listener(loopback("::1")).ok(); }

inline std::shared_ptr<net::Listener> open_test_listener(const std::vector<net::Address>& addresses = {loopback()}) {
    auto listener = net::Listener::open(addresses, "");
    if (!listener) FAIL(listener.status().sentence());
    return *listener;
}

// A connected socket without a handshake.
inline Fd stranger_at(const net::Address& address) {
    Fd socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket || connect(socket.number(), address.raw(), address.raw_bytes()) != 0)
        FAIL("no connection to " << address.text() << ": " << errno_text(errno));
    return socket;
}

// Steps the listener until the call has ended.
inline Result<Fd> finish(net::OutgoingConnection& call, net::Listener* listener = nullptr) {
    std::optional<Result<Fd>> end;
    const bool ended = eventually([&] {
        for (int i = 0; i < 100 && !end; ++i) {
            if (listener) REQUIRE(listener->progress().ok());
            auto socket = call.advance();
            if (!socket)
                end.emplace(socket.take_status());
            else if (*socket)
                end.emplace(std::move(**socket));
        }
        return end.has_value();
    });
    REQUIRE(ended);
    return std::move(*end);
}

// Reads until the other end closes; steps the listener meanwhile.
inline std::string read_to_end(const Fd& socket, net::Listener& listener) {
    std::string text;
    char buffer[4096];
    const bool ended = eventually([&] {
        for (;;) {
            REQUIRE(listener.progress().ok());
            const ssize_t got = recv(socket.number(), buffer, sizeof buffer, MSG_DONTWAIT);
            if (got > 0) text.append(buffer, size_t(got));
            if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
            if (got < 0) return false;
        }
    });
    REQUIRE(ended);
    return text;
}

inline void write_all(const Fd& socket, const void* bytes, size_t count) {
    REQUIRE(send(socket.number(), bytes, count, MSG_NOSIGNAL) == ssize_t(count));
}

// Steps the listener until a connection for this communicator is pending.
inline net::AcceptedConnection accept_for(net::Listener& listener, const net::Identity& identity, uint32_t kind) {
    std::optional<net::AcceptedConnection> accepted;
    const bool came = eventually([&] {
        REQUIRE(listener.progress().ok());
        return (accepted = listener.accept_for(identity.name, kind)).has_value();
    });
    REQUIRE(came);
    return std::move(*accepted);
}

inline std::pair<Fd, Fd> socket_pair() {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    return {Fd(ends[0]), Fd(ends[1])};
}

}  // namespace weft::internal::test
