// outgoing_connection_test.cpp: a connect finds the address that works, and gives a reason for each that does not.
#include "src/net/outgoing_connection.hpp"

#include <netinet/tcp.h>

#include "src/base/options.hpp"
#include "tests/error.hpp"
#include "tests/net/ends.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using net::Address;
using net::Listener;
using net::OutgoingConnection;

namespace {

const net::Purpose purpose{net::control, 5, 77};

// An address of loopback at which no process listens, nor can as long as this lives.
struct Deserted {
    Fd socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    Deserted() { REQUIRE(bind(socket.number(), loopback().raw(), loopback().raw_bytes()) == 0); }
    Address address() const { return net::local_address(socket.number()); }
};

}  // namespace

TEST_CASE("a call arrives at the listener with its purpose, and bytes flow both ways", "[call]") {
    for (const char* host : {"127.0.0.1", "::1"}) {
        if (host[0] == ':' && !has_ipv6()) continue;
        auto listener = open_test_listener({loopback(host)});
        const net::Identity identity = fresh_identity();
        listener->register_identity(identity);
        OutgoingConnection call(identity, purpose, listener->addresses());
        auto socket = finish(call, listener.get());
        REQUIRE(socket.ok());
        CHECK(call.peer() == listener->addresses()[0]);
        CHECK_FALSE(listener->accept_for(identity.name, net::data));
        CHECK_FALSE(listener->accept_for(identity.name, net::control, 78));
        auto accepted = listener->accept_for(identity.name, net::control, 77);
        REQUIRE(accepted);
        CHECK(accepted->purpose.detail == 5);
        CHECK(accepted->peer == net::local_address(socket->number()));
        CHECK_FALSE(listener->accept_for(identity.name, net::control, 77));
        char got = 0;
        write_all(*socket, "a", 1);
        REQUIRE(eventually([&] { return recv(accepted->socket.number(), &got, 1, MSG_DONTWAIT) == 1; }));
        CHECK(got == 'a');
        write_all(accepted->socket, "b", 1);
        REQUIRE(eventually([&] { return recv(socket->number(), &got, 1, MSG_DONTWAIT) == 1; }));
        CHECK(got == 'b');
        for (const int end : {socket->number(), accepted->socket.number()}) {
            int value = 0;
            socklen_t bytes = sizeof value;
            CHECK((getsockopt(end, IPPROTO_TCP, TCP_NODELAY, &value, &bytes) == 0 && value != 0));
            CHECK((getsockopt(end, SOL_SOCKET, SO_KEEPALIVE, &value, &bytes) == 0 && value != 0));
        }
    }
}

TEST_CASE("addresses that do not answer are skipped, and listeners of other jobs too", "[call]") {
    auto listener = open_test_listener({loopback("127.0.0.2")});
    auto strangers = open_test_listener();  // a listener that does not know the id
    auto mute = net::open_listener(loopback());
    REQUIRE(mute.ok());
    const net::Identity identity = fresh_identity();
    listener->register_identity(identity);
    const Address nowhere = *Address::parse("192.0.2.250:9");  // reserved for documentation: never answers
    const Deserted deserted;
    for (const Address& bad :
         {deserted.address(), strangers->addresses()[0], nowhere, net::local_address(mute->number())}) {
        OutgoingConnection call(identity, purpose, {bad, listener->addresses()[0]});
        std::optional<Fd> socket;
        REQUIRE(eventually([&] {
            REQUIRE(listener->progress().ok());
            REQUIRE(strangers->progress().ok());
            auto step = call.advance();
            if (!step) FAIL(step.status().sentence());
            if (*step) socket = std::move(**step);
            return socket.has_value();
        }));
        CHECK(call.peer() == listener->addresses()[0]);
        CHECK(accept_for(*listener, identity, net::control).socket);
    }
    CHECK_FALSE(listener->accept_for(identity.name, net::control));  // one accepted for each call
}

// Hosts with an address in common reach themselves there.
TEST_CASE("a call skips a process of the job that is not the target, and fails at once if there is no other",
          "[call]") {
    const net::Identity identity = fresh_identity();
    auto wrong = open_test_listener(), right = open_test_listener({loopback("127.0.0.2")});
    wrong->register_identity(identity);
    right->register_identity(identity, true);
    const net::TargetProcess root{.process = 0, .root = true};
    OutgoingConnection call(identity, purpose, {wrong->addresses()[0], right->addresses()[0]}, {}, root);
    std::optional<Fd> socket;
    REQUIRE(eventually([&] {
        REQUIRE(wrong->progress().ok());
        REQUIRE(right->progress().ok());
        auto step = call.advance();
        REQUIRE(step.ok());
        if (*step) socket = std::move(**step);
        return socket.has_value();
    }));
    CHECK(call.peer() == right->addresses()[0]);
    CHECK(accept_for(*right, identity, net::control).socket);
    CHECK_FALSE(wrong->accept_for(identity.name, net::control));

    const uint32_t here = net::process_mark(), elsewhere = here == 1 ? 2 : here - 1;
    for (const net::TargetProcess& target : {root, net::TargetProcess{.process = elsewhere}}) {
        OutgoingConnection alone(identity, purpose, wrong->addresses(), {}, target);
        auto end = finish(alone, wrong.get());
        REQUIRE_FALSE(end.ok());
        CHECK_ERROR(end, "tcp.stranger");
        CHECK(alone.misdirected());
        CHECK_FALSE(alone.closed_early());  // trying again changes nothing
        CHECK_THAT(end.status().sentence(), Catch::Contains(wrong->addresses()[0].text()) && Catch::Contains(" lo"));
    }
    // A late process may still listen at the other address.
    const Deserted deserted;
    OutgoingConnection both(identity, purpose, {wrong->addresses()[0], deserted.address()}, {}, root);
    CHECK_FALSE(finish(both, wrong.get()).ok());
    CHECK_FALSE(both.misdirected());
    // A process whose root has ended is no root.
    right->register_identity(identity);
    right->unregister_identity(identity.name, true);
    OutgoingConnection late(identity, purpose, right->addresses(), {}, root);
    CHECK_FALSE(finish(late, right.get()).ok());
    CHECK(late.misdirected());
}

TEST_CASE("a connection that is refused everywhere has a reason for each address", "[call]") {
    const net::Identity identity = fresh_identity();
    auto strangers = open_test_listener();
    const Deserted deserted;
    const Address empty = deserted.address();
    OutgoingConnection call(identity, purpose, {empty, strangers->addresses()[0]});
    auto end = finish(call, strangers.get());
    REQUIRE_FALSE(end.ok());
    CHECK_ERROR(end, "tcp.refused");  // the addresses failed in different ways
    CHECK_THAT(end.status().sentence(), Catch::Contains(empty.text()) && Catch::Contains("errno 111") &&
                                            Catch::Contains(strangers->addresses()[0].text()));
    OutgoingConnection unknown(identity, purpose, strangers->addresses());
    CHECK_ERROR(finish(unknown, strangers.get()), "tcp.turned-away");
    CHECK(unknown.unknown());
    OutgoingConnection absent(identity, purpose, {empty});
    CHECK_ERROR(finish(absent), "tcp.refused");
    CHECK(absent.refused());

    OutgoingConnection nobody(identity, purpose, {});
    auto nothing = nobody.advance();
    REQUIRE_FALSE(nothing.ok());
    CHECK_ERROR(nothing, "tcp.refused");
    OutgoingConnection apart(identity, purpose, strangers->addresses(), loopback("::1"));  // not even tried
    auto families = apart.advance();
    REQUIRE_FALSE(families.ok());
    CHECK_ERROR(families, "tcp.refused");
    CHECK_THAT(families.status().sentence(), Catch::Contains("127.0.0.1"));
}

TEST_CASE("a connection in progress names what it waits for, and is woken by it", "[call]") {
    auto listener = open_test_listener();
    const net::Identity identity = fresh_identity();
    listener->register_identity(identity);
    OutgoingConnection call(identity, purpose, listener->addresses());
    for (;;) {
        auto step = call.advance();
        REQUIRE(step.ok());
        if (*step) break;
        std::vector<pollfd> list;
        call.add_descriptors(list);
        REQUIRE(list.size() == 1);
        list.push_back({listener->descriptor(), POLLIN, 0});
        REQUIRE(poll(list.data(), list.size(), 60'000) > 0);
        REQUIRE(listener->progress().ok());
    }
    CHECK(accept_for(*listener, identity, net::control).socket);
}

TEST_CASE("an unanswered connection names the addresses that accepted it, and the others", "[call]") {
    // The kernel accepts for a listener, as many as its backlog takes; the listener never speaks.
    auto silent = net::open_listener(loopback());
    REQUIRE(silent.ok());
    const Fd full(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(listen(full.number(), 0) == 0);
    const Address accepting = net::local_address(silent->number());
    const Address crowded = loopback().with_port(net::local_address(full.number()).port());
    const Fd first = stranger_at(crowded);
    OutgoingConnection call(fresh_identity(), purpose, {crowded, accepting});
    CHECK(call.pending().empty());
    const bool both = eventually([&] {
        auto step = call.advance();
        REQUIRE(step.ok());
        REQUIRE_FALSE(*step);
        return call.pending().find(accepting.text() + " accepted the connection ") != std::string::npos;
    });
    INFO(call.pending());
    CHECK(both);
    CHECK_THAT(call.pending(), Catch::Contains(crowded.text() + " has not accepted the connection for ") &&
                                   Catch::Contains(" ms ago and has not answered"));
}

TEST_CASE("a call may come from a given address of this host", "[call]") {
    auto listener = open_test_listener();
    const net::Identity identity = fresh_identity();
    listener->register_identity(identity);
    OutgoingConnection call(identity, purpose, listener->addresses(), loopback("127.0.0.2"));
    REQUIRE(finish(call, listener.get()).ok());
    CHECK(accept_for(*listener, identity, net::control).peer.with_port(0) == loopback("127.0.0.2"));
}

// Run in a test of its own, with WEFT_SOCKET_FAMILY set to AF_INET6.
TEST_CASE("an address of a family that the user excluded is not called", "[.family]") {
    REQUIRE(options().socket_family == "AF_INET6");
    const net::Identity identity = fresh_identity();
    auto four = open_test_listener();
    four->register_identity(identity);
    OutgoingConnection ruled_out(identity, purpose, four->addresses());
    const auto socket = finish(ruled_out, four.get());
    CHECK_ERROR(socket, "tcp.refused");
    CHECK_THAT(socket.status().sentence(),
               Catch::Contains(four->addresses()[0].text()) && Catch::Contains("WEFT_SOCKET_FAMILY is AF_INET6"));
    if (!has_ipv6()) return;
    auto both = open_test_listener({loopback(), loopback("::1")});
    both->register_identity(identity);
    OutgoingConnection call(identity, purpose, both->addresses());
    REQUIRE(finish(call, both.get()).ok());
    CHECK(call.peer().family() == AF_INET6);
}
