// ends.hpp: what the tests of src/net share: identities, a door on loopback, sockets of strangers.
#pragma once
#include <poll.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "src/net/call.hpp"
#include "src/net/door.hpp"
#include "src/net/frames.hpp"
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

// Not in every container.
inline bool has_ipv6() { return net::open_listener(loopback("::1")).ok(); }

inline std::shared_ptr<net::Door> open_door(const std::vector<net::Address>& addresses = {loopback()}) {
    auto door = net::Door::open(addresses, "");
    if (!door) FAIL(door.status().sentence());
    return *door;
}

// A stranger's socket, connected.
inline Fd stranger_at(const net::Address& address) {
    Fd socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket || connect(socket.number(), address.raw(), address.raw_bytes()) != 0)
        FAIL("no connection to " << address.text() << ": " << errno_text(errno));
    return socket;
}

// Steps the door until the call has come to an end.
inline Result<Fd> finish(net::Call& call, net::Door* door = nullptr) {
    std::optional<Result<Fd>> end;
    const bool ended = eventually([&] {
        for (int i = 0; i < 100 && !end; ++i) {
            if (door) REQUIRE(door->progress().ok());
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

// What the other end writes until it closes; steps the door meanwhile.
inline std::string read_to_end(const Fd& socket, net::Door& door) {
    std::string text;
    char buffer[4096];
    const bool ended = eventually([&] {
        for (;;) {
            REQUIRE(door.progress().ok());
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

// Steps the door until something has come for this communicator.
inline net::Arrival claim(net::Door& door, const net::Identity& identity, uint32_t kind) {
    std::optional<net::Arrival> arrival;
    const bool came = eventually([&] {
        REQUIRE(door.progress().ok());
        return (arrival = door.claim(identity.name, kind)).has_value();
    });
    REQUIRE(came);
    return std::move(*arrival);
}

inline std::pair<Fd, Fd> socket_pair() {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    return {Fd(ends[0]), Fd(ends[1])};
}

}  // namespace weft::internal::test
