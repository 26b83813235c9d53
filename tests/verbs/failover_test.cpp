// failover_test.cpp: links whose lanes fail: all messages arrive once, in order, with their bytes, as long as a rail is
// left.
#include <unistd.h>

#include <random>

#include "src/base/clock.hpp"
#include "tests/amount.hpp"
#include "tests/verbs/two_hosts.hpp"
#include "transports/verbs/lanes/rails.hpp"

namespace weft::internal::test {
namespace {

const TwoHosts of_program;

// A port of RoCE with the address 10.77.SUBNET.HOST.
verbs::PortOffer port_at(int subnet, int host, int rail = -1) {
    verbs::PortOffer port;
    port.end.host = fmt::format("host {}", host);
    port.end.device = fmt::format("mlx5_{}", subnet);
    port.end.link_layer = verbs::link_ethernet;
    verbs::PortGid gid;
    gid.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, uint8_t(subnet), uint8_t(host)};
    gid.type = verbs::gid_roce_v2;
    port.gids = {gid};
    port.rail = rail;
    return port;
}
// "0-1 1-0": places of the ports of both sides.
std::string rails_of(const std::vector<verbs::PortOffer>& own, const std::vector<verbs::PortOffer>& peer, size_t most) {
    const auto rails = verbs::choose_rails(own, peer, {}, most);
    if (!rails) return seen(rails.status()).id;
    std::string text;
    for (const verbs::RailChoice& rail : *rails)
        text += fmt::format("{}{}-{}", text.empty() ? "" : " ", rail.own, rail.peer);
    return text;
}

}  // namespace

TEST_CASE("the nearest ports of both sides that reach each other are rails", "[failover]") {
    const auto here = [](int subnet, int rail = -1) { return port_at(subnet, 1, rail); };
    const auto there = [](int subnet, int rail = -1) { return port_at(subnet, 2, rail); };
    // Ports of one subnet: the i-th with the i-th.
    CHECK(rails_of({here(0), here(0), here(0)}, {there(0), there(0)}, 8) == "0-0 1-1");
    CHECK(rails_of({here(0), here(0)}, {there(0), there(0)}, 1) == "0-0");
    // A subnet for each port.
    CHECK(rails_of({here(0), here(1), here(2)}, {there(2), there(1), there(0)}, 8) == "1-1 0-2 2-0");
    CHECK(rails_of({here(0), here(1)}, {there(7), there(1)}, 8) == "1-1");
    // No subnet in common: routers may join them.
    CHECK(rails_of({here(0), here(1)}, {there(2), there(3)}, 8) == "0-0 1-1");
    // The user's rails.
    CHECK(rails_of({here(0, 0), here(0, 1)}, {there(0, 1), there(0, 0)}, 8) == "0-1 1-0");
    CHECK(rails_of({here(0, 0)}, {there(0), there(0)}, 8) == "0-0");
    CHECK(rails_of({here(0, 0)}, {there(0, 1)}, 8) == "verbs.path");
    // The link layer whose slower end is fastest, or else InfiniBand, which needs a common subnet.
    const auto infiniband = [](int host, int mbps, uint8_t subnet = 0) {
        verbs::PortOffer port = port_at(0, host);
        port.end.link_layer = verbs::link_infiniband;
        port.gids[0].bytes = {0xfe, 0x80, 0, 0, 0, 0, 0, subnet, 0, 0, 0, 0, 0, 0, 0, uint8_t(host)};
        port.gids[0].type = verbs::gid_infiniband;
        port.mbps = mbps;
        return port;
    };
    const auto roce = [](int host, int mbps) {
        verbs::PortOffer port = port_at(0, host);
        port.mbps = mbps;
        return port;
    };
    CHECK(rails_of({roce(1, 400), infiniband(1, 100)}, {roce(2, 100), infiniband(2, 400)}, 8) == "1-1");
    CHECK(rails_of({roce(1, 400), infiniband(1, 100)}, {infiniband(2, 400), roce(2, 200)}, 8) == "0-1");
    CHECK(rails_of({roce(1, 400), infiniband(1, 400)}, {infiniband(2, 400, 7), roce(2, 200)}, 8) == "0-1");
    CHECK(rails_of({roce(1, 400), infiniband(1, 400)}, {infiniband(2, 100)}, 8) == "1-0");
    CHECK(rails_of({roce(1, 400)}, {infiniband(2, 400)}, 8) == "verbs.path");
    // No GIDs fit.
    verbs::PortOffer without = there(0);
    without.gids.clear();
    CHECK(rails_of({here(0)}, {without}, 8) == "verbs.path");
}

TEST_CASE("a lane that fails at any request loses no message, and repeats none", "[failover]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const int rails = GENERATE(1, 2), status = GENERATE(12, 2);
    const int last = 120, step = small() ? 1 + int(random() % 20) : 1;
    for (int request = 1 + int(random() % uint32_t(step)); request <= last; request += step + int(small() ? 12 : 0)) {
        INFO(rails << " rails, status " << status << " at request " << request);
        Hosts hosts(rails, 1 + request % 2);
        fake_verbs().run(fmt::format("complete {} {}", status, request));
        hosts.run(40, random);
        mend();
    }
}

TEST_CASE("a lane that fails loses no message to slots that the receiver gave", "[failover]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const int rails = GENERATE(1, 2);
    for (int request = 1 + int(random() % 7); request <= 80; request += small() ? 20 : 3) {
        INFO(rails << " rails, request " << request);
        Lines hosts(Hosts::with(0, rails, 2), Hosts::with(1, rails, 2));
        hosts.add(0, 4, 60'000, false, true);
        hosts.add(1, 3, 20'000, true, true);
        hosts.add(0, 8, 300, false, true);
        fake_verbs().run(fmt::format("complete 12 {}", request));
        hosts.run(30, random);
        fake_verbs().run(fmt::format("after {} port fake0 down", 1 + random() % 40));
        hosts.run(30, random);
        mend();
    }
}

TEST_CASE("a lane that fails ends its link while puts or gets are under way, and not after them", "[failover]") {
    std::mt19937 random(1);
    const bool puts = GENERATE(true, false), confirmed = GENERATE(true, false);
    const int rails = GENERATE(1, 2);
    INFO((puts ? "puts" : "gets") << (confirmed ? " that are complete, " : ", ") << rails << " rails");
    Lines hosts(Hosts::with(0, rails, 1), Hosts::with(1, rails, 1));
    hosts.add(0, 2, 500);
    hosts.run(3, random);
    Line& line = hosts.lines[0];
    constexpr size_t bytes = 20'000;
    // Memory is registered with the devices that the settings admit.
    verbs::set_settings(host_settings(1));
    Given theirs(bytes, RangeKind::user);
    verbs::set_settings(host_settings(0));
    Given ours(bytes, RangeKind::user);
    const auto peer = taken(line.sender->attach(theirs.memory->key()));
    const auto transfer = [&] {
        return puts ? line.sender->put(ours.bytes.data(), ours.memory.get(), *peer, 0, bytes)
                    : line.sender->get(ours.bytes.data(), ours.memory.get(), *peer, 0, bytes);
    };
    const auto complete = [&](uint64_t count) {
        return taken(line.sender->progress()) && line.sender->transferred() >= count;
    };
    std::byte* const source = puts ? ours.bytes.data() : theirs.bytes.data();
    for (size_t i = 0; i < bytes; ++i) source[i] = Line::byte_of(1, i);
    // Lanes take turns as homes, and every lane fails. A lane has a queue pair on each side.
    const int objects = fake_verbs().objects();
    const auto settles_at = [&](int count) {
        return eventually([&] { return hosts.run(1, random), fake_verbs().objects() == count; });
    };
    for (uint64_t round = 1; confirmed && round <= 4; ++round) {
        REQUIRE(taken(transfer()));
        REQUIRE(eventually([&] { return complete(round); }));
        CHECK(ours.bytes == theirs.bytes);
        fake_verbs().run(fmt::format("port {} down", round % 2 ? "fake0" : "fake1"));
        REQUIRE(settles_at(objects - 2));
        mend();
        REQUIRE(settles_at(objects));
    }
    if (confirmed) return;
    if (puts) {
        // Acknowledged, and perhaps not in memory.
        REQUIRE(taken(transfer()));
        REQUIRE(eventually([&] { return taken(line.sender->progress()); }));
        fake_verbs().run("port fake0 down");
    }
    Status sender, receiver;
    REQUIRE(eventually([&] {
        // The fault may hit credits instead, which costs only the lane.
        if (!puts && sender.ok()) fake_verbs().run("complete 12 1"), (void)transfer();
        if (auto through = line.sender->progress(); !through) sender = through.take_status();
        SlotInfo info;
        if (auto slot = line.receiver->receive(info); !slot) receiver = slot.take_status();
        return !sender.ok() && !receiver.ok();
    }));
    for (const Status* each : {&sender, &receiver})
        CHECK_THAT(each->sentence(), Catch::Contains("puts or gets are under way"));
    if (puts) CHECK(line.sender->transferred() == 0);
    mend();
}

TEST_CASE("a port that goes down moves its messages, and gets messages again when it is back", "[failover]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const int rails = GENERATE(1, 2), down_status = GENERATE(0, 2);
    const std::string first = GENERATE("fake0", "fake2");
    const std::string second = first == "fake0" ? "fake3" : "fake1";
    INFO(rails << " rails, " << first << " first, status " << down_status);
    Hosts hosts(rails, 2);
    hosts.run(20, random);
    fake_verbs().run(fmt::format("down_status {}; after {} port {} down", down_status, 1 + random() % 40, first));
    hosts.run(100, random);
    fake_verbs().run(fmt::format("port {} down; port {} up", first, first));
    // Without the other rail, all messages take the first one again.
    const unsigned long before = requests_on("fake0"), before2 = requests_on("fake2");
    fake_verbs().run(fmt::format("port {} down", second));
    hosts.run(100, random);
    CHECK(requests_on("fake0") > before);
    CHECK(requests_on("fake2") > before2);
    mend();
    hosts.run(20, random);
}

TEST_CASE("a device that is removed takes no message with it, not even one that it has acknowledged", "[failover]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const std::string device = GENERATE("fake0", "fake2");
    const int rails = GENERATE(1, 2);
    const bool loses = GENERATE(false, true);
    INFO(device << ", " << rails << " rails" << (loses ? ", loses data" : ""));
    Lines hosts(Hosts::with(0, rails, 1), Hosts::with(1, rails, 1));
    fake_verbs().run("hold 2000");
    hosts.add(0, 4, 60'000);
    hosts.add(1, 3, 20'000);
    hosts.add(0, 8, 300);
    hosts.run(5, random);
    fake_verbs().run(fmt::format("after {} remove {}{}", 1 + random() % 40, device, loses ? " loses" : ""));
    hosts.run(60, random);
    fake_verbs().run("remove " + device);
    hosts.run(20, random);
    mend();
    hosts.run(20, random);
}

TEST_CASE("ports that fail and return at random times, again and again, lose no message", "[failover]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    for (int round = 0; round < (small() ? 3 : 30); ++round) {
        const int rails = 1 + int(random() % 2), pairs = 1 + int(random() % 2);
        INFO("round " << round << ", " << rails << " rails, " << pairs << " pairs");
        Hosts hosts(rails, pairs);
        fake_verbs().run(
            fmt::format("hold {}; late {}; down_status {}", random() % 300, random() % 200, random() % 2 ? 2 : 0));
        std::vector<std::string> down;
        hosts.run(150, random, [&] {
            if (random() % 6'000 != 0) return;
            const std::string device = fmt::format("fake{}", random() % 4);
            switch (random() % 5) {
                case 0:
                    return fake_verbs().run(fmt::format("complete {} {}", random() % 2 ? 12 : 20, 1 + random() % 9));
                case 1: return fake_verbs().run(fmt::format("lose {} {}", 1 + random() % 9, 1 + random() % 12));
                case 2: return fake_verbs().run(fmt::format("port {} down", device)), down.push_back(device);
                default:
                    for (const std::string& each : down) fake_verbs().run(fmt::format("port {} up", each));
                    down.clear();
            }
        });
        for (const std::string& each : down) fake_verbs().run(fmt::format("port {} up", each));
        hosts.run(20, random);
        mend();
    }
}

TEST_CASE("a call of the library that fails costs a lane, and no message", "[failover]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const std::string function = GENERATE("post_send", "post_recv", "poll_cq", "req_notify_cq");
    const int rails = GENERATE(1, 2);
    // A queue that fails keeps completions of messages that were acknowledged.
    Hosts hosts(rails, 1, function != "poll_cq");
    hosts.run(5, random);
    for (int round = 0; round < (small() ? 2 : 20); ++round) {
        const uint32_t call = 1 + random() % (function == "poll_cq" ? 500 : 40);
        INFO(function << ", call " << call << ", " << rails << " rails");
        fake_verbs().run(fmt::format("fail {} {} 5", function, call));
        hosts.run(60, random);
    }
}

TEST_CASE("a lane that cannot be connected is made later", "[failover]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    // Each of the four queue pairs goes to INIT, RTR and RTS.
    const int call = GENERATE(range(1, 13));
    Lines hosts;
    fake_verbs().run(fmt::format("fail ibv_modify_qp {} 5", call));
    hosts.add(0, 4, 20'000);
    hosts.add(1, 4, 20'000);
    std::string why;
    const bool made = hosts.work(why);
    INFO("call " << call << ": " << why);
    CHECK((made || (call <= 4 && why.find("to INIT") != std::string::npos)));
    if (!made) return;
    fake_verbs().run("port fake0 down");
    hosts.run(30, random);
    fake_verbs().run("port fake0 up; port fake3 down");
    hosts.run(30, random);
}

TEST_CASE("memory can be registered while a device is gone", "[failover]") {
    std::mt19937 random(1);
    Lines hosts;
    hosts.add(0, 2, 500);
    hosts.run(3, random);
    fake_verbs().run("remove fake2");
    hosts.add(0, 2, 20'000, true);
    hosts.add(1, 2, 20'000);
    hosts.run(20, random);
}

TEST_CASE("a link that has no lane for too long fails on both ranks", "[failover]") {
    std::mt19937 random(1);
    verbs::Settings settings[2] = {host_settings(0), host_settings(1)};
    for (verbs::Settings& each : settings) each.no_lane_us = 50'000;
    // In the second case ports are up, and new queue pairs can be connected, but the network loses all that they send.
    const std::string fault = GENERATE("port fake0 down; port fake3 down", "lose 1 1000000000");
    INFO(fault);
    Lines hosts(settings[0], settings[1]);
    hosts.add(0, 2, 500);
    hosts.run(3, random);
    fake_verbs().run(fault);
    Line& line = hosts.lines[0];
    Status sender, receiver;
    REQUIRE(eventually([&] {
        auto room = line.sender->acquire();
        if (room && *room) (void)line.sender->publish({1, line.sent++, 0});
        auto moved = line.sender->progress();
        if (!moved && sender.ok()) sender = moved.take_status();
        SlotInfo info;
        auto slot = line.receiver->receive(info);
        if (!slot && receiver.ok()) receiver = slot.take_status();
        return !sender.ok() && !receiver.ok();
    }));
    for (const Status* each : {&sender, &receiver}) {
        INFO(each->sentence());
        CHECK(seen(*each).id.rfind("verbs.", 0) == 0);
        CHECK(seen(*each).id != "verbs.broken");  // of a message that was lost with many queue pairs
    }
    mend();
}

TEST_CASE("a link without a lane lives on while its ranks compute", "[failover]") {
    std::mt19937 random(1);
    verbs::Settings settings[2] = {host_settings(0), host_settings(1)};
    for (verbs::Settings& each : settings) each.no_lane_us = 1'000'000;
    Lines hosts(settings[0], settings[1]);
    hosts.add(0, 2, 500);
    hosts.run(3, random);
    fake_verbs().run("port fake0 down; port fake3 down");
    Line& line = hosts.lines[0];
    SlotInfo info;
    for (int64_t until = now_us() + 100'000; now_us() < until;) {
        (void)taken(line.sender->progress());
        (void)taken(line.receiver->receive(info));
    }
    fake_verbs().run("port fake0 up; port fake3 up");
    usleep(1'500'000);
    hosts.run(20, random);
    mend();
}

TEST_CASE("a rank that waits asleep wakes up when its lane fails", "[failover]") {
    std::mt19937 random(1);
    Lines hosts;
    hosts.add(0, 2, 500);
    hosts.run(3, random);
    Line& line = hosts.lines[0];
    fake_verbs().run("down_status 2; port fake2 down");
    uint64_t sleeps = 0;
    REQUIRE(line.send());
    REQUIRE(eventually([&] {
        (void)taken(line.sender->progress());
        if (line.receive()) return true;
        Wakeups wakeups;
        line.receiver->add_wakeups(wakeups);
        line.sender->add_wakeups(wakeups);
        if (!wakeups.ready) {
            // Without a signal the test takes minutes, and fails.
            ++sleeps;
            poll(wakeups.descriptors.data(), wakeups.descriptors.size(), wakeups.by_time ? 1 : 60'000);
        }
        return false;
    }));
    INFO(sleeps << " sleeps");
    mend();
}

}  // namespace weft::internal::test
