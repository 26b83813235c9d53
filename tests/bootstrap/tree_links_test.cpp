// tree_links_test.cpp: heartbeats between hosts by a clock that the test moves. The test calls tick() as the leader of
// host 0 does, and it is host 1 by a plain socket.
#include "src/control/tree/tree_links.hpp"

#include <arpa/inet.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <thread>

#include "tests/bootstrap/test_clock.hpp"
#include "tests/error.hpp"
#include "tests/net/ends.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

constexpr int64_t heartbeat_ms = 10'000, heartbeat_us = heartbeat_ms * 1000, step_us = TreeLinks::tick_us;

class Leader {
    void on_service(const std::function<void()>& task) { dispatcher_->service().run(task); }
    template <class Question>
    auto asked(Question question) {
        std::optional<decltype(question())> answer;
        on_service([&] { answer.emplace(question()); });
        return *answer;
    }

  public:
    // `addresses`: where host 1 claims to listen; none: where this process does.
    explicit Leader(int64_t limit_ms, const std::vector<net::Address>& addresses = {}) {
        auto dispatcher = AcceptDispatcher::of_process();
        if (!dispatcher) FAIL(dispatcher.status().sentence());
        dispatcher_ = *dispatcher;
        dispatcher_->listener().register_identity(identity_);
        for (const int host : {0, 1}) {
            HostEntry& entry = rank_table_.hosts.emplace_back();
            entry.name = "node" + std::to_string(host);
            entry.pid = getpid();
            entry.ranks = 2;
            entry.members = {{host, getpid()}};
            entry.addresses = dispatcher_->listener().addresses();
        }
        if (!addresses.empty()) rank_table_.hosts[1].addresses = addresses;
        on_service([&] {
            links_ = std::make_unique<TreeLinks>(
                dispatcher_, identity_, rank_table_, 0, Heartbeat{limit_ms, test_clock},
                TreeLinks::Handlers{[this](int, ControlFrame, ByteReader&) { ++frames_; },
                                    [this](int, const Status* why) {
                                        ++ends_;
                                        if (why) end_ = why->sentence();
                                    },
                                    [this](const Status& trouble) { trouble_ = trouble.failure(); }});
        });
    }
    ~Leader() {
        on_service([&] { links_.reset(); });
        dispatcher_->listener().unregister_identity(identity_.name);
    }

    // Host 1 connects.
    net::FrameStream connect() {
        net::OutgoingConnection call(identity_, {net::control, 1, 0}, dispatcher_->listener().addresses());
        auto socket = finish(call);
        if (!socket) FAIL(socket.status().sentence());
        CHECK(eventually([&] { return asked([&] { return links_->linked(1); }); }));
        return net::FrameStream(std::move(*socket));
    }
    // Host 1 sends a frame, and the leader receives it.
    void receive(net::FrameStream& from, ControlFrame kind) {
        const int before = asked([&] { return frames_; });
        REQUIRE(from.queue(uint32_t(kind), nullptr, 0));
        REQUIRE(from.flush());
        CHECK(eventually([&] { return asked([&] { return frames_; }) == before + 1; }));
    }
    // The time passes, with a tick at its end.
    void pass(int64_t us) {
        test_time_us += us;
        on_service([&] {
            links_->detect_pause();
            links_->tick();
        });
    }
    // The time passes, with ticks on the way.
    void run(int64_t us) {
        for (int64_t passed = 0; passed < us; passed += step_us) pass(step_us);
    }
    bool in_trouble() {
        return asked([&] { return trouble_.has_value(); });
    }
    Failure trouble() {
        return asked([&] { return *trouble_; });
    }
    int ends() {
        return asked([&] { return ends_; });
    }
    std::string end() {
        return asked([&] { return end_; });
    }

  private:
    net::Identity identity_ = fresh_identity();
    std::shared_ptr<AcceptDispatcher> dispatcher_;
    RankTable rank_table_;
    std::unique_ptr<TreeLinks> links_;
    // Of the service thread.
    std::optional<Failure> trouble_;
    int frames_ = 0, ends_ = 0;
    std::string end_;
};

// It refuses connections, and no other process gets its port.
class UnusedPort {
  public:
    UnusedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const net::Address any = loopback();
        sockaddr_in bound{};
        socklen_t bytes = sizeof bound;
        if (bind(socket_.number(), any.raw(), any.raw_bytes()) != 0 ||
            getsockname(socket_.number(), reinterpret_cast<sockaddr*>(&bound), &bytes) != 0)
            FAIL("no port: " << errno_text(errno));
        address_ = any.with_port(ntohs(bound.sin_port));
    }
    const net::Address& address() const { return address_; }

  private:
    Fd socket_;
    net::Address address_;
};

}  // namespace

TEST_CASE("a host that sends no heartbeat is lost when the limit has passed, not before", "[tree_links]") {
    Leader leader(heartbeat_ms);
    const net::FrameStream silent = leader.connect();
    leader.run(heartbeat_us);
    CHECK(!leader.in_trouble());
    leader.pass(step_us);
    REQUIRE(leader.in_trouble());
    CHECK_ERROR(leader.trouble(), "host.lost");
    CHECK_THAT(leader.trouble().sentence, Catch::Contains("host node1") && Catch::Contains("no heartbeat"));
}

TEST_CASE("a host that sends heartbeats is never lost, and receives as many", "[tree_links]") {
    Leader leader(heartbeat_ms);
    net::FrameStream other = leader.connect();
    constexpr int rounds = 20;
    for (int round = 0; round < rounds; ++round) {
        leader.run(heartbeat_us / 2);
        leader.receive(other, ControlFrame::alive);
    }
    CHECK(!leader.in_trouble());
    // It sends one in each quarter of the limit, at the next tick.
    constexpr int64_t sent = rounds * heartbeat_us / 2 / (heartbeat_us / 4 + step_us);
    int heard = 0;
    CHECK(eventually([&] {
        for (;;) {
            auto frame = other.receive();
            REQUIRE(frame);
            if (!*frame) return heard >= sent;
            CHECK((*frame)->kind == uint32_t(ControlFrame::alive));
            ++heard;
        }
    }));
}

TEST_CASE("a leader that was stopped itself reports no other host as silent", "[tree_links]") {
    Leader leader(heartbeat_ms);
    const net::FrameStream other = leader.connect();
    leader.run(heartbeat_us / 2);
    leader.pass(10 * heartbeat_us);
    CHECK(!leader.in_trouble());
    leader.run(heartbeat_us);
    CHECK(!leader.in_trouble());
    leader.pass(step_us);
    CHECK(leader.in_trouble());
}

TEST_CASE("without heartbeats no connected host is lost", "[tree_links]") {
    Leader leader(0);
    const net::FrameStream silent = leader.connect();
    leader.run(20 * heartbeat_us);
    CHECK(!leader.in_trouble());
}

TEST_CASE("a host that has sent a shutdown frame may be silent", "[tree_links]") {
    Leader leader(heartbeat_ms);
    net::FrameStream other = leader.connect();
    leader.receive(other, ControlFrame::shutdown);
    leader.run(3 * heartbeat_us);
    CHECK(!leader.in_trouble());
    other = {};
    CHECK(eventually([&] { return leader.ends() == 1; }));
}

TEST_CASE("a host that never connects is lost after ten seconds or the heartbeat's limit", "[tree_links]") {
    for (const int64_t limit_ms : {int64_t(0), heartbeat_ms / 10, 3 * heartbeat_ms}) {
        INFO("heartbeats: " << limit_ms << " ms");
        Leader leader(limit_ms);
        leader.run(std::max<int64_t>(10'000, limit_ms) * 1000);
        CHECK(!leader.in_trouble());
        leader.pass(step_us);
        REQUIRE(leader.in_trouble());
        CHECK_ERROR(leader.trouble(), "host.lost");
        CHECK_THAT(leader.trouble().sentence, Catch::Contains("node1") && Catch::Contains("does not answer"));
    }
}

TEST_CASE("a host that died before it connected is lost once its port has refused twice", "[tree_links]") {
    const UnusedPort port;
    Leader leader(0, {port.address()});
    leader.pass(step_us);
    leader.pass(step_us);
    // Each probe needs some time of the service thread.
    CHECK(eventually([&] {
        leader.pass(step_us);
        return leader.ends() > 0;
    }));
    CHECK(leader.ends() == 1);
    CHECK(!leader.in_trouble());
    CHECK_THAT(leader.end(), Catch::Contains("has not connected") && Catch::Contains(port.address().text()));
    leader.run(1'000'000);
    CHECK(leader.ends() == 1);
}

TEST_CASE("a host that is late to connect and can be reached is not lost", "[tree_links]") {
    Leader leader(heartbeat_ms);
    for (int i = 0; i < 20; ++i) {
        leader.pass(step_us);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(leader.ends() == 0);
    const net::FrameStream late = leader.connect();
    CHECK(!leader.in_trouble());
}
