// lane_return_test.cpp: when a lane that failed carries messages again. A probe of a whole packet comes first. The event of
// an active port makes both sides try at once.
#include <random>

#include "tests/capture.hpp"
#include "tests/verbs/two_hosts.hpp"

namespace weft::internal::test {
namespace {

constexpr int port_active = 9;  // enum ibv_event_type

// Requests on the first rail that the network did not lose; one less, if the fake has not counted the request yet.
unsigned long passed_on_first_rail() {
    const unsigned long sent = requests_on("fake0") + requests_on("fake2");
    return sent - std::min(sent, fake_verbs().count("lost"));
}

}  // namespace

TEST_CASE("a rail that loses large packets only carries nothing until it is mended", "[failover]") {
    std::mt19937 random(1);
    Hosts hosts(2, 1);
    hosts.run(5, random);
    // Larger than headers, credits and small messages; smaller than a packet of 4,096 bytes.
    fake_verbs().run("hole fake0 1024; hole fake2 1024");
    hosts.run(10, random);  // all lanes of this rail have failed
    // Each rank has repeated two probes, or messages if they take this rail again.
    const auto losses = [&] {
        const unsigned long before = fake_verbs().count("lost");
        REQUIRE(eventually([&] { return hosts.run(2, random), fake_verbs().count("lost") >= before + 20; }));
    };
    losses();
    const unsigned long before = passed_on_first_rail();
    losses();
    CHECK(passed_on_first_rail() <= before + 1);
    fake_verbs().run("hole fake0 0; hole fake2 0");
    const unsigned long mended = requests_on("fake0");
    CHECK(eventually([&] { return hosts.run(1, random), requests_on("fake0") > mended + 20; }));
    mend();
}

// Without the event, the device would repeat the probe after hours only.
TEST_CASE("a port that becomes active while a probe is repeated is tried at once", "[failover]") {
    std::mt19937 random(1);
    const std::string device = GENERATE("fake0", "fake2");
    INFO(device);
    const auto patient = [](int rank) {
        verbs::Settings settings = Hosts::with(rank, 2, 1);
        settings.path.timeout = 31;
        return settings;
    };
    Lines hosts(patient(0), patient(1));
    hosts.add(0, 4, 2'000);
    hosts.add(1, 4, 2'000);
    hosts.run(5, random);
    fake_verbs().run(fmt::format("hole {} 1024; port {} down", device, device));
    hosts.run(5, random);
    const unsigned long lost = fake_verbs().count("lost");
    fake_verbs().run(fmt::format("port {} up", device));
    REQUIRE(eventually([&] { return hosts.run(1, random), fake_verbs().count("lost") > lost; }));
    fake_verbs().run(fmt::format("hole {} 0; event {} {}", device, device, port_active));
    const unsigned long active = requests_on(device);
    CHECK(eventually([&] { return hosts.run(1, random), requests_on(device) > active + 20; }));
    mend();
}

// ENETUNREACH of the change to RTR alone: the kernel makes an address with the GID.
TEST_CASE("a lane that the best GIDs do not connect is made with the next ones", "[failover]") {
    std::mt19937 random(1);
    const std::string device = GENERATE("fake0", "fake2");
    INFO(device);
    Hosts hosts(2, 1);
    hosts.run(5, random);
    fake_verbs().run(fmt::format("refuse_path {} 3 101; port {} down", device, device));
    hosts.run(5, random);
    const unsigned long before = requests_on(device);
    fake_verbs().run(fmt::format("port {} up", device));
    CHECK(eventually([&] { return hosts.run(1, random), requests_on(device) > before + 40; }));
    fake_verbs().run(fmt::format("refuse_path {} 3 0", device));
    mend();
}

// One pair of ports, of which one GID works, in the order of the ranks' choice or another one.
TEST_CASE("a link of one rail finds the only GIDs that connect", "[failover]") {
    std::mt19937 random(1);
    const int only = GENERATE(0, 1, 2), rank = GENERATE(0, 1), from = GENERATE(0, 1);
    INFO("GID " << only << ", rank " << rank << " refuses the others, rank " << from << " sends");
    const char* const device = rank == 0 ? "fake0" : "fake2";
    const auto refuse = [&](int error) {
        for (int index = 0; index < 4; ++index)
            if (index != only) fake_verbs().run(fmt::format("refuse_path {} {} {}", device, index, error));
    };
    refuse(101);
    verbs::Settings settings[2] = {Hosts::with(0, 1, 1), Hosts::with(1, 1, 1)};
    settings[0].devices = quick_settings("=fake0").devices;
    settings[1].devices = quick_settings("=fake2").devices;
    for (verbs::Settings& each : settings) each.no_lane_us = 20'000'000;
    Lines hosts(settings[0], settings[1]);
    hosts.add(from, 4, 20'000);
    hosts.run(20, random);
    // The side that only receives no longer counts the time without a lane, so its error names what happens now.
    refuse(0);
    fake_verbs().run("port fake0 down");
    std::string why;
    CHECK_FALSE(hosts.work(why));
    CHECK_THAT(why, !Catch::Contains("refuses"));
    mend();
}

// The device of either side refuses them.
TEST_CASE("a link whose best GIDs do not connect at all goes up with the next ones", "[failover]") {
    std::mt19937 random(1);
    const int rank = GENERATE(0, 1), rails = GENERATE(1, 2);
    const char* const first = rank == 0 ? "fake0" : "fake2";
    const char* const second = rank == 0 ? "fake1" : "fake3";
    INFO(first << ", " << rails << " rails");
    fake_verbs().run(fmt::format("refuse_path {} 3 101; refuse_path {} 3 101", first, second));
    Hosts hosts(rails, 1);
    hosts.run(20, random);
    fake_verbs().run(fmt::format("refuse_path {} 3 0; refuse_path {} 3 0", first, second));
    mend();
}

TEST_CASE("a link that no GIDs connect fails with the reason on both ranks", "[failover]") {
    const auto impatient = [](int rank) {
        verbs::Settings settings = host_settings(rank);
        settings.no_lane_us = 300'000;
        return settings;
    };
    const auto refuse = [](int error) {
        for (const char* device : {"fake0", "fake1"})
            for (int index = 0; index < 4; ++index)
                fake_verbs().run(fmt::format("refuse_path {} {} {}", device, index, error));
    };
    refuse(101);
    const int from = GENERATE(0, 1);
    Lines hosts(impatient(0), impatient(1));
    hosts.add(from, 2, 500);
    std::string why;
    CHECK_FALSE(hosts.work(why));
    INFO(why);
    CHECK_THAT(why, Catch::Contains("fake0") || Catch::Contains("fake1"));
    CHECK_THAT(why, Catch::Contains("rank 0"));
    refuse(0);
    mend();
}

TEST_CASE("an asynchronous event costs no message", "[failover]") {
    std::mt19937 random(1);
    // The device failed, the subnet manager wants clients to register again, the GIDs changed, a partition changed, a queue
    // overran: it reports nothing any more.
    const int type = GENERATE(8, 17, 18, 12, 0);
    INFO("event " << type);
    Hosts hosts(2, 1, type != 0);
    hosts.run(5, random);
    for (int round = 0; round < 3; ++round) {
        fake_verbs().run(fmt::format("event fake0 {}", type));
        hosts.run(20, random);
    }
    const unsigned long before = requests_on("fake0");
    CHECK(eventually([&] { return hosts.run(1, random), requests_on("fake0") > before + 40; }));
    mend();
}

// The driving thread does not have the queue yet. `first`: of the first lanes, or of one that is made again.
TEST_CASE("a completion queue that overruns while its lane is made costs no message", "[failover]") {
    std::mt19937 random(1);
    const std::string device = GENERATE("fake0", "fake2");
    const bool first = GENERATE(true, false);
    INFO(device << (first ? " first" : " again"));
    if (first) fake_verbs().run(fmt::format("overrun {} 1", device));
    Hosts hosts(2, 1, false);
    hosts.run(5, random);
    if (!first) {
        fake_verbs().run(fmt::format("port {} down", device));
        hosts.run(5, random);
        fake_verbs().run(fmt::format("overrun {} 1; port {} up", device, device));
    }
    hosts.run(20, random);
    const unsigned long before = requests_on(device);
    CHECK(eventually([&] { return hosts.run(1, random), requests_on(device) > before + 40; }));
    mend();
}

TEST_CASE("a link has the traffic class and the service level of the lower rank", "[failover]") {
    verbs::Settings settings[2] = {host_settings(0), host_settings(1)};
    settings[0].path.traffic_class = 106;
    settings[0].path.service_level = 3;
    settings[1].path.traffic_class = 8;
    std::mt19937 random(1);
    const int from = GENERATE(0, 1);
    Capture log(stderr);
    Lines hosts(settings[0], settings[1]);
    hosts.add(from, 2, 500);
    hosts.run(3, random);
    fake_verbs().run("port fake0 down; port fake2 down");
    hosts.run(3, random);
    fake_verbs().run("port fake0 up; port fake2 up");
    const std::string said = log.end();
    INFO(said);
    CHECK_THAT(said, Catch::Contains(
                         "[1] WEFT WARN takes service level 3 and traffic class 106 from rank 0, in place of 0 and 8"));
    // A request's error has the numbers of its lane.
    fake_verbs().run("complete 10 2");
    std::string why;
    (void)eventually([&] { return !hosts.work(why); });
    CHECK_THAT(why, Catch::Contains("service level 3, traffic class 106"));
}

}  // namespace weft::internal::test
