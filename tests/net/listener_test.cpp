// listener_test.cpp: connections that are accepted or refused, and the cost of thousands of strangers.
#include "src/net/listener.hpp"

#include <sys/wait.h>

#include <random>

#include "tests/amount.hpp"
#include "tests/error.hpp"
#include "tests/net/ends.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using net::Address;
using net::Listener;
using net::OutgoingConnection;

namespace {

const net::Purpose listener_purpose{net::checkin, 0, 1};

void member_gets_in(Listener& listener, const net::Identity& identity) {
    OutgoingConnection call(identity, listener_purpose, listener.addresses());
    auto socket = finish(call, &listener);
    if (!socket) FAIL(socket.status().sentence());
    CHECK(accept_for(listener, identity, net::checkin).socket);
}

bool readable(int descriptor, int timeout_ms = 0) {
    pollfd state{descriptor, POLLIN, 0};
    return poll(&state, 1, timeout_ms) > 0;
}

// Whether the listener has closed our socket.
bool closed(const Fd& socket) {
    char byte;
    const ssize_t got = recv(socket.number(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
}

}  // namespace

TEST_CASE("a listener listens at each address, and registrations are counted", "[listener]") {
    auto listener = open_test_listener({loopback(), loopback("127.0.0.3"), loopback("127.0.0.2")});
    REQUIRE(listener->addresses().size() == 3);
    const net::Identity identity = fresh_identity();
    listener->register_identity(identity);
    listener->register_identity(identity);
    for (const Address& address : listener->addresses()) {
        OutgoingConnection call(identity, listener_purpose, {address});
        REQUIRE(finish(call, listener.get()).ok());
        CHECK(accept_for(*listener, identity, net::checkin).socket);
    }
    listener->unregister_identity(identity.name);
    member_gets_in(*listener, identity);
    OutgoingConnection pending(identity, listener_purpose, listener->addresses());
    auto socket = finish(pending, listener.get());
    REQUIRE(socket.ok());
    listener->unregister_identity(identity.name);
    CHECK_FALSE(listener->accept_for(identity.name, net::checkin));
    CHECK(eventually([&] { return closed(*socket); }));  // the pending connection is dropped
    OutgoingConnection late(identity, listener_purpose, listener->addresses());
    auto refused = finish(late, listener.get());
    REQUIRE_FALSE(refused.ok());
    CHECK_ERROR(refused, "tcp.turned-away");
    CHECK(late.unknown());
    listener->unregister_identity(identity.name);  // once more has no effect
}

TEST_CASE("connections are taken by communicator, kind and token, oldest first", "[listener]") {
    auto listener = open_test_listener();
    const net::Identity one = fresh_identity(), other = fresh_identity();
    listener->register_identity(one);
    listener->register_identity(other);
    std::vector<Fd> sockets;
    const auto call = [&](const net::Identity& identity, uint32_t kind, uint32_t detail, uint64_t token) {
        OutgoingConnection made(identity, {kind, detail, token}, listener->addresses());
        auto socket = finish(made, listener.get());
        REQUIRE(socket.ok());
        sockets.push_back(std::move(*socket));
    };
    call(one, net::data, 1, 10);
    call(one, net::data, 2, 20);
    call(other, net::data, 3, 10);
    call(one, net::data, 4, 10);
    CHECK_FALSE(listener->accept_for(one.name, net::control));
    CHECK_FALSE(listener->accept_for(one.name, net::data, 30));
    CHECK(listener->accept_for(one.name, net::data, 20)->purpose.detail == 2);
    CHECK(listener->accept_for(one.name, net::data)->purpose.detail == 1);
    CHECK(listener->accept_for(other.name, net::data, 10)->purpose.detail == 3);
    CHECK(listener->accept_for(one.name, net::data, 10)->purpose.detail == 4);
    CHECK_FALSE(listener->accept_for(one.name, net::data));
}

TEST_CASE("a descriptor wakes a sleeping thread when a connection for its communicator is pending", "[listener]") {
    auto listener = open_test_listener();
    const net::Identity identity = fresh_identity(), other = fresh_identity();
    CHECK(listener->pending_descriptor(identity.name) == -1);
    listener->register_identity(identity);
    listener->register_identity(other);
    const int signal = listener->pending_descriptor(identity.name);
    CHECK_FALSE(readable(signal));
    std::vector<Fd> sockets;
    for (int i = 0; i < 2; ++i) {
        OutgoingConnection call(identity, listener_purpose, listener->addresses());
        auto socket = finish(call, listener.get());
        REQUIRE(socket.ok());
        sockets.push_back(std::move(*socket));
    }
    CHECK(readable(signal));
    CHECK_FALSE(readable(listener->pending_descriptor(other.name)));
    CHECK(listener->accept_for(identity.name, net::checkin));
    CHECK(readable(signal));
    CHECK(listener->accept_for(identity.name, net::checkin));
    CHECK_FALSE(readable(signal));
    CHECK_FALSE(readable(listener->descriptor()));  // and the listener itself has nothing to do
}

TEST_CASE("noise is refused at once, and a member connects beside it", "[listener]") {
    auto listener = open_test_listener();
    const net::Identity identity = fresh_identity();
    listener->register_identity(identity);
    std::mt19937 random(seed());
    const std::string request = "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n";
    for (int round = 0; round < 50; ++round) {
        const Fd noisy = stranger_at(listener->addresses()[0]);
        std::string noise(16 + random() % 5000, 0);
        for (char& byte : noise) byte = char(random());
        if (round == 0) noise = request;
        write_all(noisy, noise.data(), noise.size());
        CHECK(read_to_end(noisy, *listener) == "");
    }
    member_gets_in(*listener, identity);
}

TEST_CASE("a recorded connection cannot be replayed", "[listener]") {
    auto listener = open_test_listener();
    const net::Identity identity = fresh_identity();
    listener->register_identity(identity);
    // A process between them records the member's messages.
    auto tap = net::open_listener(loopback());
    REQUIRE(tap.ok());
    OutgoingConnection call(identity, listener_purpose, {net::local_address(tap->number())});
    std::optional<Fd> near, member;
    const Fd far = stranger_at(listener->addresses()[0]);
    std::string recording;
    REQUIRE(eventually([&] {
        if (!near)
            if (const int accepted = accept4(tap->number(), nullptr, nullptr, SOCK_CLOEXEC); accepted >= 0)
                near.emplace(accepted);
        char buffer[4096];
        if (near) {
            const ssize_t said = recv(near->number(), buffer, sizeof buffer, MSG_DONTWAIT);
            if (said > 0) {
                recording.append(buffer, size_t(said));
                write_all(far, buffer, size_t(said));
            }
            const ssize_t answered = recv(far.number(), buffer, sizeof buffer, MSG_DONTWAIT);
            if (answered > 0) write_all(*near, buffer, size_t(answered));
        }
        REQUIRE(listener->progress().ok());
        auto step = call.advance();
        REQUIRE(step.ok());
        if (*step) member = std::move(**step);
        return member.has_value();
    }));
    CHECK(accept_for(*listener, identity, net::checkin).socket);
    REQUIRE(recording.size() == sizeof(net::HelloMessage) + sizeof(net::ProofMessage));
    const Fd again = stranger_at(listener->addresses()[0]);
    write_all(again, recording.data(), recording.size());
    CHECK(read_to_end(again, *listener).size() == sizeof(net::ChallengeMessage));
    CHECK_FALSE(listener->accept_for(identity.name, net::checkin));
}

TEST_CASE("another version is reported for the communicator if the client knows the secret", "[listener]") {
    auto listener = open_test_listener();
    const net::Identity identity = fresh_identity();
    listener->register_identity(identity);
    for (const bool knows : {false, true}) {
        const Fd newer = stranger_at(listener->addresses()[0]);
        net::HelloMessage hello;
        hello.head.version = WEFT_VERSION_CODE + 1;
        hello.name = identity.name;
        write_all(newer, &hello, sizeof hello);
        net::ChallengeMessage challenge;
        REQUIRE(eventually([&] {
            REQUIRE(listener->progress().ok());
            return recv(newer.number(), &challenge, sizeof challenge, MSG_DONTWAIT) == ssize_t(sizeof challenge);
        }));
        net::ProofMessage proof;
        proof.mac = net::client_proof(knows ? identity.secret : net::Secret{}, hello, challenge, proof.purpose);
        write_all(newer, &proof, sizeof proof);
        CHECK(read_to_end(newer, *listener).size() == (knows ? sizeof(net::RefusalMessage) : 0));
        CHECK(listener->trouble(identity.name).ok() == !knows);
    }
    CHECK_ERROR(listener->trouble(identity.name), "mismatch.version");
    CHECK_THAT(listener->trouble(identity.name).sentence(),
               Catch::Contains(std::to_string(WEFT_VERSION_CODE + 1)) && Catch::Contains("127.0.0.1"));
    CHECK(listener->trouble(fresh_identity().name).ok());
}

TEST_CASE("a listener can also listen on a given port, and fails if the port is taken", "[listener]") {
    auto listener = open_test_listener();
    auto other = open_test_listener({loopback("127.0.0.2")});
    const net::Identity identity = fresh_identity();
    listener->register_identity(identity);
    const Status taken = listener->listen_also(other->addresses()[0].port());
    CHECK_ERROR(taken, "tcp.listen");
    CHECK_THAT(taken.sentence(), Catch::Contains(fmt::format("port {} ", other->addresses()[0].port())));
    uint16_t port = 0;
    {
        auto listener = net::open_listener(loopback());
        REQUIRE(listener.ok());
        port = net::local_address(listener->number()).port();
    }
    REQUIRE(listener->listen_also(port).ok());
    REQUIRE(listener->listen_also(port).ok());
    REQUIRE(listener->listen_also(listener->addresses()[0].port()).ok());
    for (const char* host : {"127.0.0.1", "127.0.0.3", "::1"}) {
        if (host[0] == ':' && !has_ipv6()) continue;
        OutgoingConnection call(identity, listener_purpose, {loopback(host).with_port(port)});
        auto socket = finish(call, listener.get());
        if (!socket) FAIL(socket.status().sentence());
        CHECK(accept_for(*listener, identity, net::checkin).socket);
    }
}

TEST_CASE("ports come from the range, and a full range is an error", "[listener]") {
    CHECK(net::parse_port_range("40000-40999")->second == 40999);
    CHECK(net::parse_port_range("7")->first == 7);
    for (const char* text : {"-", "0-5", "5-4", "1-65536", "a-b", "1-2-3", "-5", "5-", " "}) {
        CHECK_ERROR(net::parse_port_range(text), "option.value");
        CHECK_FALSE(Listener::open({loopback()}, text).ok());
    }
    auto first = open_test_listener();
    const uint16_t port = first->addresses()[0].port();
    const auto full = Listener::open({loopback()}, fmt::format("{0}-{0}", port));
    REQUIRE_FALSE(full.ok());
    CHECK_ERROR(full, "tcp.listen");
    CHECK_THAT(full.status().sentence(), Catch::Contains("WEFT_PORT_RANGE") && Catch::Contains(std::to_string(port)));
    auto second = Listener::open({loopback()}, fmt::format("{}-{}", port, std::min(65535, port + 50)));
    REQUIRE(second.ok());
    CHECK((*second)->addresses()[0].port() > port);
    first.reset();
    // The last port is that of a root.
    const std::string range = fmt::format("{}-{}", port, std::min(65535, port + 50));
    const auto other = Listener::open({loopback()}, range, port);
    REQUIRE(other.ok());
    CHECK((*other)->addresses()[0].port() > port);
    const auto alone = Listener::open({loopback()}, fmt::format("{0}-{0}", port), port);
    REQUIRE(alone.ok());
    CHECK((*alone)->addresses()[0].port() == port);
}

TEST_CASE("the process's listener is shared, closed with its last owner, and new in a forked child", "[listener]") {
    auto one = Listener::of_process();
    REQUIRE(one.ok());
    CHECK(*Listener::of_process() == *one);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        auto own = Listener::of_process();
        _exit(own.ok() && *own != *one && Listener::of_process().ok() ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    const Address address = (*one)->addresses()[0];
    *one = nullptr;
    const Fd socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    CHECK(connect(socket.number(), address.raw(), address.raw_bytes()) == -1);
}
