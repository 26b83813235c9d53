// door_test.cpp: who gets in, who does not, and what thousands of strangers cost.
#include "src/net/door.hpp"

#include <sys/wait.h>

#include <random>

#include "tests/net/ends.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using net::Address;
using net::Call;
using net::Door;

namespace {

const net::Purpose door_purpose{net::checkin, 0, 1};

void member_gets_in(Door& door, const net::Identity& identity) {
    Call call(identity, door_purpose, door.addresses());
    auto socket = finish(call, &door);
    if (!socket) FAIL(socket.status().sentence());
    CHECK(claim(door, identity, net::checkin).socket);
}

bool readable(int descriptor, int timeout_ms = 0) {
    pollfd state{descriptor, POLLIN, 0};
    return poll(&state, 1, timeout_ms) > 0;
}

// Whether the door has closed our socket.
bool closed(const Fd& socket) {
    char byte;
    const ssize_t got = recv(socket.number(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
}

}  // namespace

TEST_CASE("a door listens at each address and can be dismissed as often as it was admitted to", "[door]") {
    auto door = open_door({loopback(), loopback("127.0.0.3"), loopback("127.0.0.2")});
    REQUIRE(door->addresses().size() == 3);
    const net::Identity identity = fresh_identity();
    door->admit(identity);
    door->admit(identity);
    for (const Address& address : door->addresses()) {
        Call call(identity, door_purpose, {address});
        REQUIRE(finish(call, door.get()).ok());
        CHECK(claim(*door, identity, net::checkin).socket);
    }
    door->dismiss(identity.name);
    member_gets_in(*door, identity);
    Call parked(identity, door_purpose, door->addresses());
    auto socket = finish(parked, door.get());
    REQUIRE(socket.ok());
    door->dismiss(identity.name);
    CHECK_FALSE(door->claim(identity.name, net::checkin));
    CHECK(eventually([&] { return closed(*socket); }));  // what was parked is dropped
    Call late(identity, door_purpose, door->addresses());
    auto refused = finish(late, door.get());
    REQUIRE_FALSE(refused.ok());
    CHECK_THAT(refused.status().sentence(), Catch::Contains("does not know this unique id"));
    door->dismiss(identity.name);  // once too often is nothing
}

TEST_CASE("arrivals are claimed by communicator, kind and token, oldest first", "[door]") {
    auto door = open_door();
    const net::Identity one = fresh_identity(), other = fresh_identity();
    door->admit(one);
    door->admit(other);
    std::vector<Fd> sockets;
    const auto call = [&](const net::Identity& identity, uint32_t kind, uint32_t detail, uint64_t token) {
        Call made(identity, {kind, detail, token}, door->addresses());
        auto socket = finish(made, door.get());
        REQUIRE(socket.ok());
        sockets.push_back(std::move(*socket));
    };
    call(one, net::data, 1, 10);
    call(one, net::data, 2, 20);
    call(other, net::data, 3, 10);
    call(one, net::data, 4, 10);
    CHECK_FALSE(door->claim(one.name, net::control));
    CHECK_FALSE(door->claim(one.name, net::data, 30));
    CHECK(door->claim(one.name, net::data, 20)->purpose.detail == 2);
    CHECK(door->claim(one.name, net::data)->purpose.detail == 1);
    CHECK(door->claim(other.name, net::data, 10)->purpose.detail == 3);
    CHECK(door->claim(one.name, net::data, 10)->purpose.detail == 4);
    CHECK_FALSE(door->claim(one.name, net::data));
}

TEST_CASE("a sleeper is woken when something is parked for its communicator", "[door]") {
    auto door = open_door();
    const net::Identity identity = fresh_identity(), other = fresh_identity();
    CHECK(door->arrivals_descriptor(identity.name) == -1);
    door->admit(identity);
    door->admit(other);
    const int signal = door->arrivals_descriptor(identity.name);
    CHECK_FALSE(readable(signal));
    std::vector<Fd> sockets;
    for (int i = 0; i < 2; ++i) {
        Call call(identity, door_purpose, door->addresses());
        auto socket = finish(call, door.get());
        REQUIRE(socket.ok());
        sockets.push_back(std::move(*socket));
    }
    CHECK(readable(signal));
    CHECK_FALSE(readable(door->arrivals_descriptor(other.name)));
    CHECK(door->claim(identity.name, net::checkin));
    CHECK(readable(signal));
    CHECK(door->claim(identity.name, net::checkin));
    CHECK_FALSE(readable(signal));
    CHECK_FALSE(readable(door->descriptor()));  // and the door itself has nothing to do
}

TEST_CASE("noise is turned away at once, and a member gets in beside it", "[door]") {
    auto door = open_door();
    const net::Identity identity = fresh_identity();
    door->admit(identity);
    std::mt19937 random(std::random_device{}());
    const std::string request = "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n";
    for (int round = 0; round < 50; ++round) {
        const Fd noisy = stranger_at(door->addresses()[0]);
        std::string noise(16 + random() % 5000, 0);
        for (char& byte : noise) byte = char(random());
        if (round == 0) noise = request;
        write_all(noisy, noise.data(), noise.size());
        CHECK(read_to_end(noisy, *door) == "");
    }
    member_gets_in(*door, identity);
}

TEST_CASE("a recorded call is turned away when it is played again", "[door]") {
    auto door = open_door();
    const net::Identity identity = fresh_identity();
    door->admit(identity);
    // Between them a stranger who copies what the member says.
    auto tap = net::open_listener(loopback());
    REQUIRE(tap.ok());
    Call call(identity, door_purpose, {net::local_address(tap->number())});
    std::optional<Fd> near, member;
    const Fd far = stranger_at(door->addresses()[0]);
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
        REQUIRE(door->progress().ok());
        auto step = call.advance();
        REQUIRE(step.ok());
        if (*step) member = std::move(**step);
        return member.has_value();
    }));
    CHECK(claim(*door, identity, net::checkin).socket);
    REQUIRE(recording.size() == sizeof(net::HelloMessage) + sizeof(net::ProofMessage));
    const Fd again = stranger_at(door->addresses()[0]);
    write_all(again, recording.data(), recording.size());
    CHECK(read_to_end(again, *door).size() == sizeof(net::ChallengeMessage));
    CHECK_FALSE(door->claim(identity.name, net::checkin));
}

TEST_CASE("another version is trouble for the communicator if the caller knows the secret", "[door]") {
    auto door = open_door();
    const net::Identity identity = fresh_identity();
    door->admit(identity);
    for (const bool knows : {false, true}) {
        const Fd newer = stranger_at(door->addresses()[0]);
        net::HelloMessage hello;
        hello.head.version = WEFT_VERSION_CODE + 1;
        hello.name = identity.name;
        write_all(newer, &hello, sizeof hello);
        net::ChallengeMessage challenge;
        REQUIRE(eventually([&] {
            REQUIRE(door->progress().ok());
            return recv(newer.number(), &challenge, sizeof challenge, MSG_DONTWAIT) == ssize_t(sizeof challenge);
        }));
        net::ProofMessage proof;
        proof.mac = net::caller_proof(knows ? identity.secret : net::Secret{}, hello, challenge, proof.purpose);
        write_all(newer, &proof, sizeof proof);
        CHECK(read_to_end(newer, *door).size() == (knows ? sizeof(net::RefusalMessage) : 0));
        CHECK(door->trouble(identity.name).ok() == !knows);
    }
    CHECK(door->trouble(identity.name).code() == weftMismatch);
    CHECK_THAT(door->trouble(identity.name).sentence(),
               Catch::Contains(std::to_string(WEFT_VERSION_CODE + 1)) && Catch::Contains("127.0.0.1"));
    CHECK(door->trouble(fresh_identity().name).ok());
}

TEST_CASE("a port that was agreed before can be listened on as well, and one that is taken is a sentence", "[door]") {
    auto door = open_door();
    auto other = open_door({loopback("127.0.0.2")});
    const net::Identity identity = fresh_identity();
    door->admit(identity);
    const Status taken = door->listen_also(other->addresses()[0].port());
    CHECK(taken.code() == weftSystemError);
    CHECK_THAT(taken.sentence(), Catch::Contains(fmt::format("port {} is taken", other->addresses()[0].port())));
    uint16_t port = 0;
    {
        auto listener = net::open_listener(loopback());
        REQUIRE(listener.ok());
        port = net::local_address(listener->number()).port();
    }
    REQUIRE(door->listen_also(port).ok());
    REQUIRE(door->listen_also(port).ok());
    REQUIRE(door->listen_also(door->addresses()[0].port()).ok());
    for (const char* host : {"127.0.0.1", "127.0.0.3", "::1"}) {
        if (host[0] == ':' && !has_ipv6()) continue;
        Call call(identity, door_purpose, {loopback(host).with_port(port)});
        auto socket = finish(call, door.get());
        if (!socket) FAIL(socket.status().sentence());
        CHECK(claim(*door, identity, net::checkin).socket);
    }
}

TEST_CASE("ports come from the range, and a full range is a sentence", "[door]") {
    CHECK(net::parse_port_range("40000-40999")->second == 40999);
    CHECK(net::parse_port_range("7")->first == 7);
    for (const char* text : {"-", "0-5", "5-4", "1-65536", "a-b", "1-2-3", "-5", "5-", " "}) {
        CHECK(net::parse_port_range(text).status().code() == weftInvalidArgument);
        CHECK_FALSE(Door::open({loopback()}, text).ok());
    }
    auto first = open_door();
    const uint16_t port = first->addresses()[0].port();
    const auto full = Door::open({loopback()}, fmt::format("{0}-{0}", port));
    REQUIRE_FALSE(full.ok());
    CHECK_THAT(full.status().sentence(), Catch::Contains("WEFT_PORT_RANGE") && Catch::Contains(std::to_string(port)));
    auto second = Door::open({loopback()}, fmt::format("{}-{}", port, std::min(65535, port + 50)));
    REQUIRE(second.ok());
    CHECK((*second)->addresses()[0].port() > port);
}

TEST_CASE("the process's door is shared, closed with its last owner, and new in a forked child", "[door]") {
    auto one = Door::of_process();
    REQUIRE(one.ok());
    CHECK(*Door::of_process() == *one);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        auto own = Door::of_process();
        _exit(own.ok() && *own != *one && Door::of_process().ok() ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    const Address address = (*one)->addresses()[0];
    *one = nullptr;
    const Fd socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    CHECK(connect(socket.number(), address.raw(), address.raw_bytes()) == -1);
}
