// check_in_test.cpp: the tree in which leaders wait for the rank table. The model counts connections, frames and bytes of
// up to 4,096 hosts, and leaders in this process agree with it. Failures reach the leaders below others.
#include <atomic>
#include <cmath>
#include <functional>

#include "src/segment/failure_record.hpp"
#include "tests/amount.hpp"
#include "tests/bootstrap/check_in_model.hpp"
#include "tests/bootstrap/leaders.hpp"
#include "tests/error.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

constexpr int arity = CheckInTree::arity;
constexpr int first_below = arity + 1;  // the first place whose parent is a leader: that at place 1

std::vector<HostEntry> made_up_hosts(int count, int ranks_per_host) {
    const net::Address address = loopback("10.0.0.1").with_port(40'000);
    std::vector<HostEntry> hosts;
    for (int host = 0; host < count; ++host) {
        HostEntry& entry = hosts.emplace_back();
        entry.identity = uint64_t(host) + 1;
        entry.name = fmt::format("node{:04}.cluster.example", host);
        entry.pid = 100'000 + host;
        entry.ranks = count * ranks_per_host;
        entry.boot = uint64_t(host) + 1;
        entry.share.add(allowed_cpus(), {});
        entry.machine.text = std::string(20'000, 'm');
        entry.addresses = {address, address};
        for (int rank = 0; rank < ranks_per_host; ++rank)
            entry.members.push_back({.rank = host * ranks_per_host + rank, .pid = 200'000 + rank});
    }
    return hosts;
}

}  // namespace

TEST_CASE("no host has more than 18 connections, 36 sent frames and one received rank table at any number of hosts",
          "[check_in]") {
    constexpr size_t control_bytes = 600;  // the placement: one leader's name, ranks and addresses
    for (const int count : {2, 3, 16, 17, 64, 272, 273, 1000, 4096}) {
        if (small() && count == 1000) continue;
        INFO(count << " hosts");
        const CheckInModel model(made_up_hosts(count, 8), fresh_identity().secret);
        size_t entries = 0;
        for (int place = 1; place <= count; ++place) {
            const CheckInTraffic& host = model.at(place);
            INFO("place " << place << ": " << host.text());
            const size_t machine = place == 1 ? 20'004 : 0;  // all machines are equal
            entries += model.entry_bytes(place);
            REQUIRE(host.connections <= 2 + arity);
            REQUIRE(host.frames_sent <= 4 + 2 * arity);
            REQUIRE(host.frames_received <= 3 + arity);
            REQUIRE(host.bytes_received <= model.table_bytes() + control_bytes);
            REQUIRE(host.bytes_sent <= model.entry_bytes(place) + machine + arity * model.table_bytes());
            REQUIRE(model.depth(place) <= 1 + int(std::log(place) / std::log(arity)));
        }
        const CheckInTraffic& root = model.at(0);
        INFO("root: " << root.text());
        CHECK(root.connections == uint64_t(count));
        CHECK(root.frames_received <= 2 * uint64_t(count) + 1);
        CHECK(root.bytes_received == entries + 20'004);
        CHECK(root.bytes_sent <= arity * model.table_bytes() + size_t(count) * control_bytes);
    }
}

TEST_CASE("leaders exchange exactly the connections, frames and bytes of the model", "[check_in]") {
    for (const int count : {2, arity, arity + 1, 40, 290}) {
        // The largest has three levels.
        if (count > 40 && (small() || sanitized)) continue;
        INFO(count << " hosts");
        Hosts hosts(count);
        REQUIRE(hosts.met());
        std::vector<HostEntry> entries;
        for (int place = 1; place <= count; ++place) {
            const int host = hosts.at(place);
            HostEntry& entry = entries.emplace_back(hosts.entry(host));
            entry.members = {{.rank = host, .pid = 1000 + host, .cpu = hosts[host].rank_info(host).cpu}};
            entry.share.add(allowed_cpus(), {});
        }
        const CheckInModel model(entries, hosts.identity().secret);
        for (int place = 1; place <= count; ++place)
            CHECK(hosts.traffic(hosts.at(place)).text() == model.at(place).text());
        CHECK(hosts.root().traffic().text() == model.at(0).text());
    }
}

TEST_CASE("a leader that cannot reach its parent waits at the root", "[check_in]") {
    const auto nobody = loopback().with_port(1);
    constexpr int count = arity + 3, last = count - 1;
    Hosts hosts(count, 1'000'000'000, 0);
    // It is the parent of three hosts here, and has nothing below it in the control tree.
    hosts.add(last, {nobody});
    REQUIRE(hosts.placed());
    for (int host = 0; host < last; ++host) hosts.add(host);
    REQUIRE(hosts.met());
    CHECK(hosts.at(1) == last);
    for (int host = 0; host < count; ++host) CHECK(hosts.traffic(host).connections == 1);
}

TEST_CASE("ranks that join late at hosts below others are known to all", "[check_in]") {
    constexpr int count = arity + 4;
    Hosts hosts(count, 1'000'000'000, count - 1);
    REQUIRE(hosts.placed());
    for (int place = 1; place < count; ++place)
        CHECK(
            eventually([&] { return hosts.control(hosts.at(place)).obstacle() == fmt::format("rank {}", count - 1); }));
    const int host = hosts.at(first_below);
    hosts.join(host, count - 1);
    REQUIRE(hosts.met());
    for (int other = 0; other < count - 1; ++other)
        CHECK(hosts[other].rank_info(count - 1).host == hosts[other].rank_info(host).host);
}

TEST_CASE("a leader that ends during the rendezvous is named on all hosts, also below it", "[check_in]") {
    constexpr int count = arity + 4;
    for (const int place : {1, first_below}) {
        INFO("place " << place);
        Hosts hosts(count, 1'000'000'000, count - 1);
        REQUIRE(hosts.placed());
        REQUIRE(eventually([&] {  // attached
            return hosts.traffic(hosts.at(1)).connections == 4;
        }));
        const int ended = hosts.at(place);
        hosts.end(ended);
        for (int host = 0; host < count - 1; ++host) {
            if (host == ended) continue;
            REQUIRE(eventually([&] { return hosts[host].aborted(); }));
            CHECK_ERROR(FailureRecord(hosts[host]).status(), "init.rank-died", ended);
            CHECK_THAT(FailureRecord(hosts[host]).status().sentence(),
                       Catch::Contains(fmt::format("node{} (", ended)) && Catch::Contains("joining"));
        }
    }
}

TEST_CASE("a leader whose host turns out to have all ranks ends the check-in, before it knows its place",
          "[check_in]") {
    Hosts hosts(2, 1'000'000'000, 0);
    Service& service = hosts.dispatcher().service();
    std::atomic<bool> left{false};
    // All on the service thread. As soon as the leader has sent its check-in, it leaves without an answer.
    const std::function<void()> leave_early = [&] {
        if (hosts.traffic(0).frames_sent == 0) return service.post(leave_early);
        hosts.join(0, 1);
        hosts.leave(0);
        left = true;
    };
    service.post([&] {
        hosts.add(0);
        leave_early();
    });
    REQUIRE(eventually([&] { return left.load(); }));
    REQUIRE(eventually([&] { return hosts.root().finished(); }));
    hosts.add(1);
    REQUIRE(eventually([&] { return hosts[1].aborted(); }));
    CHECK_ERROR(FailureRecord(hosts[1]).status(), "init.id-used", -1);
}

TEST_CASE("a host that waits at the root is refused when another turns out to have all ranks", "[check_in]") {
    Hosts hosts(3, 1'000'000'000, 0);
    hosts.add(1);
    REQUIRE(hosts.placed());
    Service& service = hosts.dispatcher().service();
    std::atomic<bool> left{false};
    const std::function<void()> leave_early = [&] {
        if (hosts.traffic(0).frames_sent == 0) return service.post(leave_early);
        hosts[0].header().joined = 3;
        hosts.leave(0);
        left = true;
    };
    service.post([&] {
        hosts.add(0);
        leave_early();
    });
    REQUIRE(eventually([&] { return left.load() && hosts[1].aborted(); }));
    CHECK_ERROR(FailureRecord(hosts[1]).status(), "init.id-used", -1);
    CHECK(eventually([&] { return hosts.root().finished(); }));
}

TEST_CASE("the end of the root is reported by leaders below others, too", "[check_in]") {
    constexpr int count = arity + 4;
    Hosts hosts(count, 1'000'000'000, count - 1);
    REQUIRE(hosts.placed());
    REQUIRE(eventually([&] { return hosts.traffic(hosts.at(1)).connections == 4; }));
    hosts.end_root();
    for (int host = 0; host < count - 1; ++host) {
        REQUIRE(eventually([&] { return hosts[host].aborted(); }));
        CHECK_ERROR(FailureRecord(hosts[host]).status(), "init.leader-lost");
    }
}

TEST_CASE("an error of a host below others reaches all hosts, and those that check in later", "[check_in]") {
    constexpr int count = 2 * arity + 4;
    Hosts hosts(count, 1'000'000'000, count - 2);
    REQUIRE(hosts.placed());
    const int first = hosts.at(first_below);
    FailureRecord(hosts[first]).raise(error::timeout_collective, first, "too late", {.rank = count - 1, .peer = first});
    hosts.add(count - 2);
    for (int host = 0; host < count - 1; ++host) {
        REQUIRE(eventually([&] { return hosts[host].aborted(); }));
        CHECK_ERROR(FailureRecord(hosts[host]).status(), "timeout.collective", count - 1, first);
        CHECK(FailureRecord(hosts[host]).status().sentence() == "too late");
    }
}
