// lane_return_test.cpp: when a lane that failed carries messages again. A probe of a whole packet comes first. The event of
// an active port makes both sides try at once.
#include <random>

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

}  // namespace weft::internal::test
