// The cut bound against all borders.
#include "topology/search/cut_bound.hpp"

#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/topology/channels.hpp"
#include "tests/topology/machines.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::topology;

namespace {

MachineGraph all_of(const Graph& graph, bool outside) {
    return {&graph, islands_of(graph)[0], graph.of_kind(NodeKind::gpu), outside, PathClass::sys, PathClass::sys};
}

// Every set of nodes with a rank on either side. Ports stand with the outside or not, as is cheaper: all are tried.
double by_hand(const MachineGraph& machine_graph) {
    const Graph& graph = *machine_graph.graph;
    const size_t nodes = graph.nodes().size();
    double least = 1e300;
    for (uint32_t set = 0; set < uint32_t(1) << nodes; ++set) {
        const auto inside = [&](int node) { return (set >> node & 1) != 0; };
        size_t within = 0;
        for (const int site : machine_graph.sites) within += inside(site);
        if (within == 0 || (within == machine_graph.sites.size() && !machine_graph.outside)) continue;
        double out = 0, in = 0;
        for (const Link& link : graph.links())
            if (inside(link.source) != inside(link.target)) {
                out += inside(link.source) || link.both_ways ? link.bandwidth_gbs : 0;
                in += inside(link.target) || link.both_ways ? link.bandwidth_gbs : 0;
            }
        // The outside stays outside: a port inside leads there without bound.
        bool leaks = false;
        for (const int port : graph.of_kind(NodeKind::port)) leaks |= machine_graph.outside && inside(port);
        if (!leaks) least = std::min({least, out, in});
    }
    return least;
}

}  // namespace

TEST_CASE("the narrowest border is found and reported", "[topology]") {
    const auto pcie = read_machine("pcie_4_gpus");
    const Cut cut = narrowest_cut(all_of(pcie.graph, false));
    CHECK(cut.gbs == Approx(6));
    CHECK(cut.why == "the links that join gpu 3 to the rest: pci of 6 GB/s from gpu 3 to cpu 1");
    const auto mesh = read_machine("dgx1_v100");
    CHECK(narrowest_cut(all_of(mesh.graph, false)).gbs == Approx(126));
    MachineGraph near = all_of(mesh.graph, false);
    near.reach = PathClass::nvl;
    CHECK(narrowest_cut(near).gbs == Approx(120));
    CHECK(narrowest_cut(near, 20).gbs == Approx(6));
    CHECK(narrowest_cut(near, 15).gbs == Approx(6));  // one in 20 GB/s, two in 40
    const Cut out = narrowest_cut(all_of(mesh.graph, true));
    CHECK(out.gbs == Approx(48));
    CHECK(out.why.find("the links out of the machine: pci of 12 GB/s from pci 0000:03:00.0 to nic 0000:05:00.0") == 0);
    const auto one = read_machine("grace_hopper");
    CHECK(narrowest_cut(all_of(one.graph, false)).gbs > 1e300);
    CHECK(narrowest_cut(all_of(one.graph, true)).gbs == Approx(48));
}

TEST_CASE("on random machines max-flow finds the same as trying all borders", "[topology]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    for (int round = 0; round < 40; ++round) {
        const Graph graph = random_machine(random, 2 + int(random() % 4), true);
        for (const bool outside : {false, true}) {
            INFO("round " << round << (outside ? ", with ports" : ""));
            CHECK(narrowest_cut(all_of(graph, outside)).gbs == Approx(by_hand(all_of(graph, outside))));
        }
    }
}
