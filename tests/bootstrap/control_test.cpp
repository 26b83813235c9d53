// control_test.cpp: leaders of several hosts, each with its own segment, in this process. Tested: forwarding for other
// ranks, the end of a leader, and failures.
#include "src/control/control.hpp"

#include <atomic>
#include <thread>

#include "src/control/ended_leaders.hpp"
#include "src/control/watchdog.hpp"
#include "src/segment/failure_record.hpp"
#include "tests/bootstrap/leaders.hpp"
#include "tests/error.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

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

TEST_CASE("connection info is awaited for a while after the end of each leader on its way", "[control]") {
    Hosts hosts(4);
    REQUIRE(hosts.met());
    Segment& group = hosts[1];
    const auto end = [&](int leader) {
        REQUIRE(group.back_rows(leader, 1));
        group.rank_info(leader).pid = group.host_info(leader).leader;
        group.row(leader).remote.leader_ended = 1;
    };
    LeaderWatch watch;
    const auto look = [&](const std::vector<int>& missing, int64_t now_us) {
        return watch.look(group, 1, missing, 500, now_us);
    };
    CHECK(look({2, 3}, 900).ok());
    end(2);
    CHECK(look({2, 3}, 1'000).ok());
    end(3);
    CHECK(look({2, 3}, 1'400).ok());
    CHECK_ERROR(look({2, 3}, 1'500), "host.lost", 2, 1);
    // The info of rank 2 has come, so that only the other leader's time counts.
    CHECK(look({3}, 1'899).ok());
    CHECK_ERROR(look({3}, 1'900), "host.lost", 3, 1);
    // Of a leader that nobody waits for no time passes.
    CHECK(look({2}, 2'000).ok());
    CHECK(look({2}, 2'499).ok());
}

TEST_CASE("data of a remote rank that has finished its call may come as long as a device repeats it", "[control]") {
    const auto [repeat_us, in_flight_us] =
        GENERATE(table<int64_t, int64_t>({{0, 45'000'000}, {10'000'000, 45'000'000}, {60'000'000, 90'000'000}}));
    Hosts hosts(2);
    REQUIRE(hosts.met());
    REQUIRE(hosts[0].back_rows(1, 1));
    for (const int host : {0, 1}) {
        hosts[host].row(1).position.enter(1, some_operation());
        hosts[host].row(1).position.finish(1);
    }
    RankSet missing;
    missing.insert(1);
    Watchdog watchdog(hosts[0], 0, "", {.repeat_us = repeat_us});
    const auto look = [&](int64_t silence_us) {
        return watchdog.look(missing, 1, some_operation(), silence_us, false);
    };
    for (int turn = 0; turn < 3; ++turn) CHECK(look(in_flight_us - 1).ok());
    CHECK(look(in_flight_us).ok());  // it may have come since the rank last polled
    CHECK_ERROR(look(in_flight_us + 1), "mismatch.call", 1, 0);
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
