// choice_inputs_test.cpp: the links between hosts that communicators count in their choices are those that `weft schedule
// simulate` counts for the same machines.
#include "src/planning/chooser.hpp"
#include "src/registry.hpp"
#include "src/selector/network_kinds.hpp"
#include "tests/catch.hpp"
#include "tools/simulate_scene.hpp"
#include "topology/description.hpp"

namespace weft::internal::tools {
namespace {

SimulateRequest request_on(const char* machine, int rails) {
    SimulateRequest request;
    request.algorithm = "all";
    request.topology = std::string(WEFT_SCHEDULES) + "/../topology/machines/" + machine + ".xml";
    request.hosts = 2;
    request.network = "ndr";
    request.rails = rails;
    return request;
}

// A communicator on the GPUs of the scene, as a host sees it when all ranks have met.
std::shared_ptr<Segment> group_on(const Scene& scene, const NetworkSpeed& speed) {
    auto group = Segment::create(scene.layout.ranks, false);
    REQUIRE(group);
    Segment& made = **group;
    REQUIRE(made.back_rows(0, scene.layout.ranks));
    for (int rank = 0; rank < scene.layout.ranks; ++rank) {
        made.rank_info(rank).host = scene.layout.host_of(rank);
        made.rank_info(rank).cpu = -1;
        DeviceFacts& device = made.row(rank).gpu.facts;
        device.use = DeviceFacts::usable;
        scene.graph->node(scene.job.locations[size_t(rank)].node).busid.copy(device.bus_id, sizeof device.bus_id - 1);
    }
    AgreedTexts texts;
    for (int host = 0; host < scene.hosts; ++host) texts.add_machine({topology::describe(*scene.graph), ""});
    REQUIRE(texts.leave(made));
    AgreedFacts& facts = made.header().facts;
    facts.hosts = facts.machines = scene.hosts;
    facts.ranks_per_core = 1;
    facts.network = {1, speed};
    made.header().spread = 1;
    REQUIRE(made.settle());
    return *group;
}

}  // namespace

TEST_CASE("communicators count the links of a host that the simulation counts", "[schedule]") {
    const int rails = GENERATE(1, 2);
    const char* machine = GENERATE("dgx_h100", "a100_bridge");
    const auto scene = scene_of(request_on(machine, rails));
    REQUIRE(scene.ok());
    const NetworkSpeed speed{LinkClass::infiniband, 400'000, int16_t(rails), 8};
    const auto group = group_on(*scene, speed);
    const auto machines = Machines::of(*group);
    REQUIRE(machines.ok());
    const Layout layout = (*machines)->device_layout(0);
    INFO(machine << ", " << rails << " rails");
    CHECK(layout.rails == scene->layout.rails);
    // As GpuJoin does.
    const NetworkLinks links = network_links(layout, speed);
    CHECK(links.kind == scene->network);
    CHECK(links.mbps == scene->link_mbps);
    CHECK(links.links == scene->net_links);
    CHECK(links.links == (std::string(machine) == "dgx_h100" ? 8 / rails : 1));
    // By processors, the first of which is near to half of the ports.
    const auto catalog = std::make_shared<const Catalog>(Catalog::load("", 0, registry::algorithms()));
    const Chooser chooser(*group, 0, catalog, *machines, nullptr);
    CHECK(chooser.links().net_links == network_links(chooser.layout(), speed).links);
    CHECK(chooser.links().net_links == (std::string(machine) == "dgx_h100" ? 4 / rails : 1));
}

TEST_CASE("ports without RDMA are no links, and neither are those of TCP", "[schedule]") {
    Layout layout = layout_in_blocks(8, 2);
    CHECK(network_links(layout, {LinkClass::roce, 100'000, 1, 4}).links == 1);
    layout.rails = {0, 1, 2, 3, 0, 1, 2, 3};
    CHECK(network_links(layout, {LinkClass::roce, 100'000, 1, 4}).links == 4);
    CHECK(network_links(layout, {LinkClass::roce, 100'000, 1, 2}).links == 2);
    CHECK(network_links(layout, {LinkClass::roce, 100'000, 3, 4}).links == 1);
    CHECK(network_links(layout, {LinkClass::roce, 100'000, 1, 0}).links == 1);
    CHECK(network_links(layout, {}).links == 1);
    CHECK(network_links({4, 0, {}}, {LinkClass::roce, 100'000, 1, 4}).kind == nullptr);
}

}  // namespace weft::internal::tools
