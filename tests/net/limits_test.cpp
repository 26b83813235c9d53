// limits_test.cpp: thousands of unauthenticated connections, and a process without descriptors: members still connect.
#include <sys/resource.h>

#include "src/net/listener.hpp"
#include "tests/net/ends.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using net::Listener;
using net::OutgoingConnection;

namespace {

const net::Purpose limits_purpose{net::checkin, 0, 1};

size_t descriptors() {
    size_t count = 0;
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    for (int fd = 0; fd < int(std::min<rlim_t>(limit.rlim_cur, 20000)); ++fd) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

class Limit {
  public:
    explicit Limit(rlim_t descriptors) {
        getrlimit(RLIMIT_NOFILE, &before_);
        rlimit changed = before_;
        changed.rlim_cur = std::min(descriptors, before_.rlim_max);
        setrlimit(RLIMIT_NOFILE, &changed);
    }
    ~Limit() { setrlimit(RLIMIT_NOFILE, &before_); }

  private:
    rlimit before_{};
};

}  // namespace

TEST_CASE("thousands of silent connections do not keep a member out, and are dropped", "[limits]") {
    const Limit limit(16384);
    auto listener = open_test_listener();
    const net::Identity identity = fresh_identity();
    listener->register_identity(identity);
    std::vector<Fd> strangers;
    const size_t before = descriptors();
    for (int round = 0; round < 4; ++round) {
        for (int i = 0; i < 700; ++i) {
            strangers.push_back(stranger_at(listener->addresses()[0]));
            if (i % 50 == 0) REQUIRE(listener->progress().ok());
        }
        OutgoingConnection call(identity, limits_purpose, listener->addresses());
        auto socket = finish(call, listener.get());
        if (!socket) FAIL(socket.status().sentence());
        CHECK(accept_for(*listener, identity, net::checkin).socket);
        CHECK(descriptors() - before - strangers.size() <= Listener::unauthenticated_max + 2);
    }
}

TEST_CASE("ten thousand connections that open and close leave no descriptor", "[limits]") {
    auto listener = open_test_listener();
    const net::Identity identity = fresh_identity();
    listener->register_identity(identity);
    const size_t before = descriptors();
    for (int i = 0; i < 10'000; ++i) {
        Fd stranger = stranger_at(listener->addresses()[0]);
        const linger at_once{1, 0};  // a reset, so that no port is left waiting
        setsockopt(stranger.number(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        if (i % 3 == 0) write_all(stranger, "noise that is long enough to be told from a handshake", 50);
        stranger.reset();
        if (i % 20 == 0) REQUIRE(listener->progress().ok());
    }
    OutgoingConnection call(identity, limits_purpose, listener->addresses());
    CHECK(finish(call, listener.get()).ok());
    CHECK(accept_for(*listener, identity, net::checkin).socket);
    CHECK(eventually([&] {
        REQUIRE(listener->progress().ok());
        return descriptors() <= before;
    }));
}

TEST_CASE("without descriptors connections wait, and are accepted when descriptors are free again", "[limits]") {
    auto listener = open_test_listener();
    const net::Identity identity = fresh_identity();
    listener->register_identity(identity);
    OutgoingConnection call(identity, limits_purpose, listener->addresses());
    REQUIRE(call.advance().ok());  // its socket exists before there are none left
    bool waits = true, rests = true;
    {
        // No assertion in here: under UBSan each needs a descriptor.
        const Limit limit(100);
        std::vector<Fd> all;
        for (int number = dup(0); number >= 0; number = dup(0)) all.emplace_back(number);
        for (int i = 0; i < 100; ++i) {
            waits &= listener->progress().ok();
            auto step = call.advance();
            waits &= step.ok() && !*step;
        }
        // It does not spin meanwhile: the listener rests until its timer says so.
        pollfd state{listener->descriptor(), POLLIN, 0};
        for (int quiet = 0; quiet < 3 && rests;) {
            rests = poll(&state, 1, 60'000) == 1 && listener->progress().ok();
            quiet += poll(&state, 1, 0) == 0;
        }
    }
    CHECK(waits);
    CHECK(rests);
    auto socket = finish(call, listener.get());
    if (!socket) FAIL(socket.status().sentence());
    CHECK(accept_for(*listener, identity, net::checkin).socket);
}

TEST_CASE("a member that connects beside a thousand others is not taken for a stranger", "[limits]") {
    const Limit limit(16384);
    auto listener = open_test_listener();
    const net::Identity identity = fresh_identity();
    listener->register_identity(identity);
    std::vector<OutgoingConnection> calls;
    constexpr int count = 1500;
    for (int i = 0; i < count; ++i) {
        calls.emplace_back(identity, limits_purpose, listener->addresses());
        REQUIRE(calls.back().advance().ok());
    }
    std::vector<Fd> sockets;
    int arrived = 0;
    REQUIRE(eventually([&] {
        REQUIRE(listener->progress().ok());
        for (size_t i = 0; i < calls.size();) {
            auto step = calls[i].advance();
            if (!step) FAIL(step.status().sentence());
            if (!*step) {
                ++i;
                continue;
            }
            sockets.push_back(std::move(**step));
            std::swap(calls[i], calls.back());
            calls.pop_back();
        }
        while (listener->accept_for(identity.name, net::checkin)) ++arrived;
        return calls.empty();
    }));
    CHECK(arrived == count);
}
