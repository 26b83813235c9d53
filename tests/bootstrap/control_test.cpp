// control_test.cpp: leaders of several hosts, each with its own segment, in this process. Tested: forwarding for other
// ranks, the end of a leader, and failures.
#include "src/control/control.hpp"

#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <thread>

#include "src/base/process_token.hpp"
#include "src/rendezvous/root_rendezvous.hpp"
#include "src/segment/failure_record.hpp"
#include "src/segment/oob_store.hpp"
#include "tests/bootstrap/test_clock.hpp"
#include "tests/error.hpp"
#include "tests/net/ends.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

template <class T>
T value_of(Result<T> result) {
    if (!result) FAIL(result.status().sentence());
    return std::move(*result);
}

// Hosts with one rank each, checked in at a root in this process; host 9 is below host 1 in the tree.
class Hosts {
  public:
    // Only the first `present` of them if less than all are.
    explicit Hosts(int count, int64_t heartbeat_ms = 1'000'000'000, int present = INT_MAX)
        : dispatcher_(value_of(AcceptDispatcher::of_process())), root_(dispatcher_, identity_) {
        for (int host = 0; host < std::min(count, present); ++host) groups_.push_back(make_group(count, host));
        for (size_t host = 0; host < groups_.size(); ++host) add_leader(int(host), heartbeat_ms);
    }
    ~Hosts() {
        for (int host = 0; host < int(controls_.size()); ++host)
            if (controls_[size_t(host)]) leave(host);
        CHECK(eventually(
            [&] { return std::all_of(left_.begin(), left_.end(), [](auto& one) { return one.expired(); }); }));
    }

    Segment& operator[](int host) { return *groups_[size_t(host)]; }
    AcceptDispatcher& dispatcher() { return *dispatcher_; }
    const net::Identity& identity() const { return identity_; }
    // All have the rank table.
    bool met() {
        // As a rank that joins: the service thread may still be in settle() of its own.
        return eventually([&] {
            return std::all_of(groups_.begin(), groups_.end(),
                               [](const auto& group) { return !group->one_host() && group->settle().ok(); });
        });
    }
    void leave(int host) {
        auto& control = controls_[size_t(host)];
        (*this)[host].row(host).state.store(RankState::left);
        left_.push_back(control);
        Control::leave(std::move(control));
    }
    // An entry from one host to another.
    void post(int from, int to, uint64_t key) {
        const char text[] = "entry";
        REQUIRE(OobStore((*this)[from]).put(from, to, key, text, sizeof text));
    }
    // While the test's clock moves on.
    bool aborts(int host) {
        return eventually([&] {
            test_time_us += 1'000'000;
            return (*this)[host].aborted();
        });
    }
    // Not while the test's clock moves on by this time.
    bool waits(int host, int64_t us) {
        test_time_us += us;
        std::this_thread::sleep_for(std::chrono::microseconds(2 * TreeLinks::tick_us));
        return !(*this)[host].aborted();
    }
    // All controls that were left.
    bool ended() {
        return eventually([&] {
            return std::all_of(left_.begin(), left_.end(), [](const auto& control) { return control.expired(); });
        });
    }
    bool comes(int from, int to, uint64_t key) {
        return eventually([&] { return OobStore((*this)[to]).get(from, key) != nullptr; });
    }

  private:
    static std::shared_ptr<Segment> make_group(int ranks, int rank) {
        auto group = value_of(Segment::create(ranks, false));
        group->doorbell().set(Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
        RankRow& row = group->row(rank);
        row.pid = 1000 + rank;  // the rank table tells hosts apart by the pids of their ranks
        row.process = process_token();
        row.cpus = allowed_cpus();
        row.state = RankState::joined;
        group->rank_info(rank).pid = row.pid;
        group->header().joined = 1;
        return group;
    }
    void add_leader(int host, int64_t heartbeat_ms) {
        ControlSettings settings;
        settings.heartbeat_ms = heartbeat_ms;
        settings.clock = test_clock;
        settings.settled_event = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        settings.check_in.root = dispatcher_->listener().addresses();
        settings.check_in.root_exists = true;
        HostEntry& self = settings.check_in.self;
        self.identity = uint64_t(host) + 1;
        self.name = "node" + std::to_string(host);
        self.pid = getpid();
        self.ranks = groups_[size_t(host)]->ranks();
        self.addresses = dispatcher_->listener().addresses();
        controls_.push_back(
            std::make_shared<Control>(dispatcher_, groups_[size_t(host)], identity_, std::move(settings)));
    }

    net::Identity identity_ = fresh_identity();
    std::shared_ptr<AcceptDispatcher> dispatcher_;
    RootRendezvous root_;
    std::vector<std::shared_ptr<Segment>> groups_;
    std::vector<std::shared_ptr<Control>> controls_;
    std::vector<std::weak_ptr<Control>> left_;
};

constexpr int count = 10, inner = 1, below = 9, beside = 8;

Operation some_operation() {
    Operation operation{};
    operation.count = 1;
    return operation;
}

}  // namespace

TEST_CASE("a leader whose ranks have left still forwards entries of the hosts below it", "[control]") {
    Hosts hosts(count);
    REQUIRE(hosts.met());
    hosts.leave(inner);
    for (uint64_t key = 1; key <= 3; ++key) {
        hosts.post(below, beside, key);
        hosts.post(beside, below, key);
        CHECK(hosts.comes(below, beside, key));
        CHECK(hosts.comes(beside, below, key));
    }
    for (int host = 0; host < count; ++host) CHECK(!hosts[host].aborted());
    for (const int host : {0, below, beside})
        CHECK(eventually([&] { return hosts[host].row(inner).state == RankState::left; }));
}

TEST_CASE("an error goes through a leader whose ranks have left", "[control]") {
    Hosts hosts(count);
    REQUIRE(hosts.met());
    hosts.leave(inner);
    FailureRecord(hosts[below]).raise(error::timeout_collective, below, "too late", {.rank = 4, .peer = below});
    for (int host = 0; host < count; ++host) {
        CHECK(eventually([&] { return hosts[host].aborted(); }));
        CHECK_ERROR(FailureRecord(hosts[host]).status(), "timeout.collective", 4, below);
        CHECK(FailureRecord(hosts[host]).status().sentence() == "too late");
    }
}

TEST_CASE("leaders end, in any order in which ranks leave", "[control]") {
    const std::vector<std::vector<int>> orders{
        {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {9, 8, 7, 6, 5, 4, 3, 2, 1, 0}, {1, 9, 0, 5, 4, 8, 2, 3, 7, 6}};
    for (const auto& order : orders) {
        Hosts hosts(count);
        REQUIRE(hosts.met());
        for (const int host : order) hosts.leave(host);
        for (int host = 0; host < count; ++host) CHECK(!hosts[host].aborted());
    }
}

TEST_CASE("a rank that asks learns of every host that has left, at any number of them", "[control]") {
    Hosts hosts(count);
    REQUIRE(hosts.met());
    for (const int host : {3, beside, below}) hosts.leave(host);
    for (const int health_requests : {0, inner, 5})
        for (const int host : {3, beside, below}) {
            INFO(health_requests << " asks for " << host);
            CHECK(eventually([&] {
                hosts[health_requests].header().health_requests.fetch_add(1);
                hosts[health_requests].doorbell().ring();
                return hosts[health_requests].row(host).state == RankState::left;
            }));
        }
    for (int host = 0; host < count; ++host) CHECK(!hosts[host].aborted());
}

TEST_CASE("ranks that need a leader that has ended to connect get an error", "[control]") {
    Hosts hosts(3);
    REQUIRE(hosts.met());
    hosts.post(1, 2, 1);
    CHECK(hosts.comes(1, 2, 1));
    hosts.leave(0);
    Control::await_shutdown();
    hosts.post(1, 2, 2);
    CHECK(hosts.waits(1, 2'900'000));  // the cause of the leader's end may still come
    CHECK(hosts.aborts(1));
    CHECK_ERROR(FailureRecord(hosts[1]).status(), "host.lost", 2);
    CHECK_THAT(FailureRecord(hosts[1]).status().sentence(),
               Catch::Contains("rank 2 (pid 1002 on node2)") && Catch::Contains(" node0"));
    CHECK(!hosts[2].aborted());
    // An entry for a rank that has left needs no route.
    hosts.leave(1);
    CHECK(!hosts[2].aborted());
}

TEST_CASE("an entry without a route is reported, though the leader that got it has no ranks any more", "[control]") {
    for (const bool process_ends : {false, true}) {
        INFO(process_ends);
        Hosts hosts(count);
        REQUIRE(hosts.met());
        hosts.leave(0);
        Control::await_shutdown();
        hosts.post(below, 2, 1);
        hosts.post(below, inner, 2);  // after the first on the same connection
        CHECK(hosts.comes(below, inner, 2));
        hosts.leave(inner);
        if (process_ends) Control::await_shutdown();
        CHECK(hosts.aborts(below));
        CHECK_ERROR(FailureRecord(hosts[below]).status(), "host.lost", 2);
        CHECK_THAT(FailureRecord(hosts[below]).status().sentence(),
                   Catch::Contains("rank 2 ") && Catch::Contains(" node0"));
    }
}

TEST_CASE("the end of a process waits for ranks in a call that its own ranks have finished", "[control]") {
    Hosts hosts(count);
    REQUIRE(hosts.met());
    for (int host = 0; host < count; ++host) {
        Position& position = hosts[host].row(host).position;
        position.enter(1, some_operation());
        if (host != below) position.finish(1);
    }
    hosts.leave(inner);
    std::atomic<bool> returned = false;
    std::thread ending([&] {
        Control::await_shutdown();
        returned = true;
    });
    // It knows the position of all ranks, and continues.
    CHECK(eventually([&] { return hosts[inner].row(below).position.read()->entered == 1; }));
    hosts.post(below, beside, 1);
    CHECK(hosts.comes(below, beside, 1));
    CHECK(!returned);
    hosts[below].row(below).position.finish(1);
    ending.join();
    CHECK(hosts.ended());
    for (int host = 0; host < count; ++host)
        if (host != inner) CHECK(hosts[host].row(host).state == RankState::joined);
}

TEST_CASE("an exception on the service thread is an error on every host", "[control]") {
    Hosts hosts(3);
    REQUIRE(hosts.met());
    hosts.dispatcher().service().post([] { throw std::bad_alloc(); });
    for (int host = 0; host < 3; ++host) {
        CHECK(eventually([&] { return hosts[host].aborted(); }));
        CHECK_ERROR(FailureRecord(hosts[host]).status(), "memory.exhausted");
    }
}

TEST_CASE("a host that checks in and never connects to its parent is an error, without heartbeats too", "[control]") {
    Hosts hosts(2, 0, 1);
    // The other host checks in, receives the rank table and is silent.
    net::OutgoingConnection call(hosts.identity(), {net::checkin, 0, 0}, hosts.dispatcher().listener().addresses());
    net::FrameStream stream(value_of(finish(call)));
    HostEntry self;
    self.identity = 77;
    self.name = "silent";
    self.pid = 1001;
    self.ranks = 2;
    self.members = {{1, 1001}};
    ByteWriter content;
    self.write(content);
    REQUIRE(stream.queue(uint32_t(CheckInFrame::host), content.bytes().data(), content.bytes().size()));
    REQUIRE(stream.flush());
    REQUIRE(hosts.met());
    hosts.dispatcher().service().run(
        [] { test_time_us += 11'000'000; });  // after the task that received the rank table
    CHECK(eventually([&] { return hosts[0].aborted(); }));
    CHECK_ERROR(FailureRecord(hosts[0]).status(), "host.lost");
    CHECK_THAT(FailureRecord(hosts[0]).status().sentence(), Catch::Contains("host silent") && Catch::Contains("node0"));
}
