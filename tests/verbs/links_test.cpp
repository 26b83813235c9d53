// links_test.cpp: the transport over verbs beyond the conformance suite: many connections on one link, faults of devices
// and calls, and limits. Over the fake libibverbs.
#include <malloc.h>

#include <algorithm>
#include <random>

#include "src/registry.hpp"
#include "tests/amount.hpp"
#include "tests/open_descriptors.hpp"
#include "tests/verbs/connections.hpp"
#include "tests/verbs/limited_pinning.hpp"
#include "transports/verbs/devices.hpp"
#include "transports/verbs/site.hpp"

namespace weft::internal::test {
namespace {

const WithSettings of_program(quick_settings());

// The first error that either end tells. Both ends are polled meanwhile.
struct Ends {
    Status sender, receiver;
    bool both() const { return !sender.ok() && !receiver.ok(); }
};
void look(Line& line, Ends& ends) {
    if (ends.sender.ok()) {
        auto room = line.sender->acquire();
        if (room && *room && line.sent < 1'000'000) {
            memset(room->data, int(line.sent), line.slot_bytes);
            ends.sender = line.sender->publish({line.slot_bytes, line.sent++, 0});
        } else if (!room) {
            ends.sender = room.take_status();
        }
        auto through = line.sender->progress();
        if (!through && ends.sender.ok()) ends.sender = through.take_status();
    }
    SlotInfo info;
    auto slot = line.receiver->receive(info);
    if (!slot && ends.receiver.ok()) ends.receiver = slot.take_status();
    if (slot && *slot) (void)line.receiver->release();
}

bool is_about_rdma(const Status& status) {
    const std::string id = seen(status).id;
    return id.rfind("verbs.", 0) == 0;
}

}  // namespace

TEST_CASE("many connections of one link carry messages in both directions, and close in any order", "[links]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const auto [statements, rails, pairs] =
        GENERATE(table<std::string, int, int>({{"reorder 1; hold 50; late 0", 1, 1},
                                               {"reorder 1; hold 300; late 200", 1, 1},
                                               {"reorder 0", 1, 1},
                                               {"reorder 1; hold 50; late 100", 2, 2},
                                               {"reorder 1; lose 20 3; lose 90 1", 1, 1}}));
    INFO(statements << ", " << rails << " rails, " << pairs << " pairs");
    const int objects = fake_verbs().objects();
    {
        verbs::Settings settings = quick_settings(rails > 1 ? "" : "=fake0");
        settings.rails = rails;
        settings.pairs_per_rail = pairs;
        settings.striped_bytes = 8'192;
        settings.pair.send_requests = 16;  // queues run full
        settings.path.retries = 7;
        const WithSettings held(settings);
        fake_verbs().run(statements);
        const TwoRanks ranks;
        std::vector<Line> lines;
        const size_t count = 12;
        for (size_t i = 0; i < count; ++i)
            lines.push_back(
                ranks.line(int(random() % 2), 1 + int(random() % 6), 1 + random() % (i % 3 ? 2'000 : 60'000)));
        for (const Line& line : lines) REQUIRE(line.failure.ok());
        const uint64_t messages = small() ? 60 : 400;
        size_t closed = 0;
        while (closed < count) {
            Line& line = lines[random() % count];
            if (!line.receiver) continue;
            // Some connections are slow.
            for (unsigned tries = random() % 8; tries > 0; --tries) {
                if (line.sent < messages) (void)line.send();
                (void)taken(line.sender->progress());
                (void)line.receive();
            }
            if (line.received < messages) continue;
            if (random() % 2) line.sender.reset();
            line.receiver.reset();
            line.sender.reset();
            ++closed;
        }
    }
    // The devices stay open for the process.
    CHECK(fake_verbs().objects() <= std::max(objects, 6));
    fake_verbs().run("reorder 1; hold 50; late 0");
}

TEST_CASE("the speed of a link is that of its rails, as far as the buses of their devices carry it", "[links]") {
    const auto speed = [](std::vector<verbs::PortRate> ports, int rails) {
        return verbs::speed_of_link(LinkClass::roce, ports, rails);
    };
    const auto expected = [](int32_t mbps, int rails, int ports) {
        return NetworkSpeed{LinkClass::roce, mbps, int16_t(rails), int16_t(ports)};
    };
    const std::vector<verbs::PortRate> apart{{0, 400, 0}, {1, 400, 0}}, one_device{{0, 200, 252}, {0, 200, 252}};
    CHECK(speed(apart, 1) == expected(400, 1, 2));
    CHECK(speed(apart, 2) == expected(400, 2, 2));
    CHECK(speed(apart, 8) == expected(400, 2, 2));
    CHECK(speed({{0, 400, 0}, {1, 100, 0}}, 2) == expected(100, 2, 2));
    CHECK(speed({{0, 0, 0}, {1, 100, 0}}, 1) == expected(100, 1, 2));
    CHECK(speed({{0, 0, 0}}, 1) == expected(0, 1, 1));
    // Two ports share a bus, and one alone has it.
    CHECK(speed(one_device, 1) == expected(200, 1, 1));
    CHECK(speed(one_device, 2) == expected(126, 2, 2));
    CHECK(speed({{0, 200, 1'000}, {0, 200, 1'000}}, 2) == expected(200, 2, 2));
    CHECK(speed({{0, 200, 252}, {0, 200, 252}, {1, 200, 252}, {1, 200, 252}}, 3) ==
          expected((126 + 126 + 200) / 3, 3, 3));
}

TEST_CASE("the watchdog learns how long devices repeat a message", "[links]") {
    verbs::Settings settings = quick_settings();
    settings.path.timeout = 22;
    settings.path.retries = 7;
    const WithSettings held(settings);
    CHECK(registry::longest_repeat_us() == 8 * 17'179'869);
}

TEST_CASE("communicators that come and go leave no memory, descriptors or objects", "[links]") {
    const auto round = [] {
        const TwoRanks ranks;
        std::vector<Line> lines;
        for (int i = 0; i < 4; ++i) lines.push_back(ranks.line(i % 2, 2, 30'000));
        for (Line& line : lines)
            for (int message = 0; message < 3; ++message) {
                REQUIRE(eventually([&] { return line.send(); }));
                REQUIRE(eventually([&] { return line.arrives(); }));
            }
    };
    // Tables of the process reach their size.
    for (int i = 0; i < 5; ++i) round();
    const int objects = fake_verbs().objects();
    const size_t descriptors = open_descriptors(), bytes = mallinfo2().uordblks;
    const int rounds = small() ? 10 : 40;
    for (int i = 0; i < rounds; ++i) round();
    CHECK(fake_verbs().objects() == objects);
    CHECK(open_descriptors() <= descriptors);
    // The slots alone of a connection have 60,000 bytes.
    CHECK(mallinfo2().uordblks < bytes + size_t(rounds) * 2'048);
}

TEST_CASE("messages larger than a stripe go over all queue pairs of a link", "[links]") {
    verbs::Settings settings = quick_settings("");
    settings.rails = 2;
    settings.pairs_per_rail = 3;
    settings.striped_bytes = 4'096;
    const WithSettings held(settings);
    const TwoRanks ranks;
    Line line = ranks.line(0, 2, 100'000);
    while (line.received < 50) {
        if (line.sent < 50) (void)line.send();
        (void)taken(line.sender->progress());
        (void)line.receive();
    }
}

TEST_CASE("both ends of a queue pair use the extensions that both have, or none", "[links]") {
    const auto options = GENERATE(as<std::string>(), "3 3", "3 1", "1 3", "1 2", "3 -1", "-1 3", "-1 -1");
    const bool wanted = GENERATE(true, false);
    INFO(options << ", wanted: " << wanted);
    verbs::Settings settings = quick_settings();
    settings.ece = wanted;
    const WithSettings held(settings);
    fake_verbs().run("ece_options " + options);
    const TwoRanks ranks;
    Line line = ranks.line(0, 2, 500), back = ranks.line(1, 2, 500);
    for (Line* each : {&line, &back}) {
        INFO(each->failure.sentence());
        REQUIRE(each->failure.ok());
        while (each->received < 5) {
            if (each->sent < 5) (void)each->send();
            (void)each->arrives();
        }
    }
    fake_verbs().run("ece_options 3 3");
}

TEST_CASE("credits go along with messages in the other direction", "[links]") {
    verbs::Settings settings = quick_settings();
    settings.path.timeout = 22;  // 17 s: a request that is late on a busy machine is not counted twice
    const WithSettings held(settings);
    const TwoRanks ranks;
    Line there = ranks.line(0, 4, 500), back = ranks.line(1, 4, 500);
    const auto send = [](Line& line) {
        const uint64_t last = line.received;
        REQUIRE(eventually([&] { return line.sent > last || line.send(); }));
        REQUIRE(eventually([&] { return line.arrives(); }));
    };
    send(there), send(back);
    const unsigned long before = fake_verbs().count("fake0");
    for (int turn = 0; turn < 40; ++turn) send(there), send(back);
    const unsigned long answered = fake_verbs().count("fake0");
    CHECK(answered - before == 80);
    for (int turn = 0; turn < 40; ++turn) send(there);
    // Two released messages are told by a request of their own.
    unsigned long requests = 0;
    const bool told = eventually([&] {
        requests = fake_verbs().count("fake0") - answered;
        return requests == 60;
    });
    CAPTURE(requests);
    CHECK(told);
}

TEST_CASE("for adaptive routing, data goes ahead of immediate data", "[links]") {
    verbs::Settings settings = quick_settings("");
    settings.rails = 2;
    settings.pairs_per_rail = 2;
    settings.striped_bytes = GENERATE(size_t(4'096), size_t(1) << 30);
    settings.adaptive_routing = {.wanted = true, .least_bytes = 1'000};
    const WithSettings held(settings);
    const TwoRanks ranks;
    Line line = ranks.line(0, 3, 40'000);
    REQUIRE(line.failure.ok());
    const unsigned long before = fake_verbs().count("fake0") + fake_verbs().count("fake1");
    const uint64_t messages = 40;
    while (line.received < messages) {
        if (line.sent < messages) (void)line.send();
        (void)line.arrives();
    }
    uint64_t large = 0;
    for (uint64_t number = 0; number < messages; ++number) large += Line::length_of(number, 40'000) > 1'000;
    // Each message has a write with immediate data, and each large one a write of data ahead of it.
    CHECK(fake_verbs().count("fake0") + fake_verbs().count("fake1") - before >= messages + large);
}

TEST_CASE("a request that fails is an error with both ends on both ranks", "[links]") {
    const int status = GENERATE(12, 10, 4, 20);
    const TwoRanks ranks;
    Line line = ranks.line(1, 2, 500);
    REQUIRE(line.send());
    REQUIRE(eventually([&] { return line.arrives(); }));
    fake_verbs().run(fmt::format("complete {} 3", status));
    Ends ends;
    REQUIRE(eventually([&] { return look(line, ends), ends.both(); }));
    CHECK_ERROR(ends.sender, "verbs.completion");
    CHECK_ERROR(ends.receiver, "verbs.completion");
    for (const Status* each : {&ends.sender, &ends.receiver}) {
        INFO(each->sentence());
        CHECK_THAT(each->sentence(), Catch::Contains("rank 0") && Catch::Contains("rank 1"));
    }
    // One of the two ends saw the request itself.
    const std::string both = ends.sender.sentence() + ends.receiver.sentence();
    CHECK_THAT(both, Catch::Contains(fmt::format("(status {},", status)) && Catch::Contains("fake0:1") &&
                         Catch::Contains("GID 3"));
    // Calls after it fail, too.
    CHECK_FALSE(line.sender->progress().ok());
}

TEST_CASE("a call of the library that fails is an error on both ranks, at every step, and leaks nothing", "[links]") {
    const auto function = GENERATE(as<std::string>(), "ibv_create_cq", "ibv_create_comp_channel", "ibv_create_qp",
                                   "ibv_modify_qp", "ibv_reg_mr", "post_send", "post_recv", "poll_cq", "req_notify_cq",
                                   "ibv_query_port", "_ibv_query_gid_table", "ibv_query_pkey");
    // EIO, ENOMEM, EINVAL, ETIMEDOUT.
    const auto [call, number] = GENERATE(table<int, int>({{1, 5}, {2, 12}, {3, 22}, {5, 110}}));
    INFO(function << ", call " << call << ", errno " << number);
    fake_verbs().run("reorder 0");
    const int objects = fake_verbs().objects();
    {
        const TwoRanks ranks;
        fake_verbs().run(fmt::format("fail {} {} {}", function, call, number));
        Line line = ranks.line(0, 2, 300);
        bool told = !line.failure.ok();
        if (told) CHECK(is_about_rdma(line.failure));
        Ends ends;
        // Some calls are optional, or are not made so often.
        const auto over = [&] {
            if (told || line.received >= 40) return true;
            look(line, ends);
            Wakeups wakeups;
            line.receiver->add_wakeups(wakeups);
            return ends.both() || (ends.sender.ok() && ends.receiver.ok() && line.sent >= 40);
        };
        REQUIRE(eventually(over));
        for (const Status* each : {&ends.sender, &ends.receiver})
            if (!each->ok()) {
                INFO(each->sentence());
                CHECK(is_about_rdma(*each));
            }
    }
    fake_verbs().run("no_failures");
    // A thread that connects queue pairs may still have them.
    CHECK(eventually([&] { return fake_verbs().objects() <= std::max(objects, 6); }));
    fake_verbs().run("reorder 1");
}

TEST_CASE("if the kernel pins no more memory, the error says what to do", "[links]") {
    const LimitedPinning limited;
    fake_verbs().run("memlock 100000");
    const TwoRanks ranks;
    const Line line = ranks.line(0, 4, 100'000);
    fake_verbs().run("memlock 18446744073709551615");
    CHECK_ERROR(line.failure, "verbs.memlock");
    CHECK_THAT(line.failure.sentence(), Catch::Contains("ulimit -l unlimited"));
}

TEST_CASE("a port that goes down is an error on both ranks", "[links]") {
    const TwoRanks ranks;
    Line line = ranks.line(0, 2, 500);
    REQUIRE(line.send());
    REQUIRE(eventually([&] { return line.arrives(); }));
    fake_verbs().run("port fake0 down; down_status 2");
    Ends ends;
    REQUIRE(eventually([&] { return look(line, ends), ends.both(); }));
    CHECK(is_about_rdma(ends.sender));
    CHECK(is_about_rdma(ends.receiver));
    fake_verbs().run("port fake0 up; down_status 0");
}

TEST_CASE("an end that closes while the other waits ends the wait, after the last data", "[links]") {
    const TwoRanks ranks;
    Line line = ranks.line(1, 3, 500);
    for (int i = 0; i < 3; ++i) REQUIRE(line.send());
    REQUIRE(eventually([&] { return line.arrives(); }));
    line.sender.reset();
    REQUIRE(eventually([&] { return line.receive(); }));
    REQUIRE(eventually([&] { return line.receive(); }));
    Status seen;
    REQUIRE(eventually([&] {
        SlotInfo info;
        auto slot = line.receiver->receive(info);
        if (!slot) seen = slot.take_status();
        return !seen.ok();
    }));
    CHECK_ERROR(seen, "verbs.broken");
    CHECK_THAT(seen.sentence(), Catch::Contains("from rank 1 "));
}

TEST_CASE("a receiver whose sender never came learns that the peer has ended", "[links]") {
    const TwoRanks ranks;
    Line line = ranks.line(1, 2, 500);
    REQUIRE(line.send());
    REQUIRE(eventually([&] { return line.arrives(); }));
    Line lone{.from = 1, .depth = 2, .slot_bytes = 500, .receiver = {}, .sender = {}, .failure = {}};
    Blob blob;
    lone.receiver = taken(verbs_transport().listen(ranks.options(0, lone), blob));
    CHECK_FALSE(lone.receive());
    line.sender.reset();
    Status seen;
    REQUIRE(eventually([&] {
        SlotInfo info;
        auto slot = lone.receiver->receive(info);
        if (!slot) seen = slot.take_status();
        return !seen.ok();
    }));
    CHECK_ERROR(seen, "verbs.broken");
}

TEST_CASE("a port without the wanted GID or partition key is an error before a link is made", "[links]") {
    verbs::Settings settings = quick_settings();
    const bool of_gid = GENERATE(true, false);
    if (of_gid)
        settings.gids.index = 77;
    else
        settings.partition_key.value = 0x8123;
    const WithSettings held(settings);
    const TwoRanks ranks;
    const Line line = ranks.line(0, 2, 500);
    CHECK_ERROR(line.failure, "option.value");
    CHECK_THAT(line.failure.sentence(),
               of_gid ? Catch::Contains("fake0:1") && Catch::Contains("77") && Catch::Contains("10.77.0.1")
                      : Catch::Contains("fake0:1") && Catch::Contains("0x8123") && Catch::Contains("0xffff"));
    CHECK_THAT(verbs_transport().available(), Catch::Contains(of_gid ? "77" : "0x8123"));
}

TEST_CASE("memory is registered with the devices that the settings admit, be their ports up or down", "[links]") {
    std::vector<std::byte> bytes(4'096);
    REQUIRE(verbs_transport().available() == "");  // opens the devices
    const auto regions = [&](RangeKind kind) {
        const int before = fake_verbs().objects();
        const auto made =
            verbs_transport().register_memory({.data = bytes.data(), .bytes = bytes.size(), .kind = kind});
        return made ? fake_verbs().objects() - before : -1;
    };
    for (const RangeKind kind : {RangeKind::user, RangeKind::device}) {
        CHECK(regions(kind) == 1);
        const WithSettings held(quick_settings(""));
        CHECK(regions(kind) == 2);
        // A link that is made when the port is up again has a key.
        fake_verbs().run("port fake1 down");
        CHECK(regions(kind) == 2);
        // The memory of a GPU may be out of reach for a device that no link uses.
        fake_verbs().run("fail ibv_reg_mr_iova2 2 14");
        CHECK(regions(kind) == (kind == RangeKind::device ? 1 : -1));
        fake_verbs().run("port fake1 up; no_failures; fail ibv_reg_mr_iova2 2 14");
        CHECK(regions(kind) == -1);
        fake_verbs().run("no_failures");
    }
}

TEST_CASE("a connection with more slots than verbs has names the remedy", "[links]") {
    const TwoRanks ranks;
    CHECK(ranks.line(0, 256, 100).failure.ok());
    const Line line = ranks.line(0, 257, 100);
    CHECK_ERROR(line.failure, "usage.limit");
    CHECK_THAT(line.failure.sentence(), Catch::Contains("256") && Catch::Contains("`fifo`"));
}

TEST_CASE("a GID that the kernel refuses is not chosen for a link", "[links]") {
    fake_verbs().run("refuse_gid fake0 3 22");
    {
        const TwoRanks ranks;
        Line line = ranks.line(0, 2, 500);
        REQUIRE(eventually([&] { return line.send(); }));
        REQUIRE(eventually([&] { return line.arrives(); }));
    }
    fake_verbs().run("refuse_gid fake0 3 0");
}

TEST_CASE("a completion queue has room again for a queue pair that could not be made", "[links]") {
    verbs::QueueRoom room;
    const verbs::Devices& devices = *taken(verbs::Devices::of_process());
    const auto first = taken(room.reserve(devices, 0, 5'000));
    CHECK(taken(room.reserve(devices, 0, 5'000)) != first);
    room.give_back(first, 5'000);
    CHECK(taken(room.reserve(devices, 0, 5'000)) == first);
}

TEST_CASE("the network has a name if a port is active, and none is announced otherwise", "[links]") {
    CHECK(verbs_transport().available() == "");
    const uint32_t network = verbs_transport().networks()[0].network;
    CHECK(network != 0);
    const Networks announced = registry::own_networks();
    REQUIRE(registry::transport_of(announced[0].mark) == &verbs_transport());
    CHECK(verbs_transport().rails().size() == 2);
    fake_verbs().run("port fake0 down; port fake1 down");
    CHECK_THAT(verbs_transport().available(), Catch::Contains("the port is DOWN"));
    CHECK(verbs_transport().networks()[0].network != 0);
    CHECK(registry::own_networks() == Networks{});
    // Ranks that have met keep to what they agreed on then.
    CHECK(registry::transport_of(announced[0].mark) == &verbs_transport());
    fake_verbs().run("port fake0 up; port fake1 up");
    CHECK(verbs_transport().networks()[0].network == network);
}

TEST_CASE("hosts with two link layers announce both, and a link uses one that has ports at both ends", "[links]") {
    fake_verbs().run("layer fake1 1; no_gids fake1; gid fake1 0 fe80:0000:0000:0000:0000:00ff:fe00:0001 0 0");
    {
        const WithSettings held(quick_settings(""));
        CHECK(verbs_transport().networks().size() == 2);
        const auto carries = [&](const char* device) {
            const unsigned long before = fake_verbs().count(device);
            const TwoRanks ranks;
            Line line = ranks.line(0, 2, 500);
            REQUIRE(line.failure.ok());
            REQUIRE(eventually([&] { return line.send(); }));
            REQUIRE(eventually([&] { return line.arrives(); }));
            return fake_verbs().count(device) > before;
        };
        CHECK(carries("fake1"));  // as fast
        fake_verbs().run("port fake1 down");
        CHECK(carries("fake0"));
        fake_verbs().run("port fake1 up; speed fake1 2 32");
        CHECK(carries("fake0"));
    }
    fake_verbs().run(
        "layer fake1 2; speed fake1 2 128; no_gids fake1;"
        "gid fake1 2 0000:0000:0000:0000:0000:ffff:0a4d:0101 1 1; gid fake1 3 0000:0000:0000:0000:0000:ffff:0a4d:0101 "
        "2 1");
}

}  // namespace weft::internal::test
