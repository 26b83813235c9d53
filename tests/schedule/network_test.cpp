// network_test.cpp: predictions for hosts with several links: the ranks that share a link, and its traffic.
#include "algorithms/network.hpp"

#include "src/registry.hpp"
#include "src/selector/built_in_costs.hpp"
#include "src/selector/selector.hpp"
#include "tests/catch.hpp"

using namespace weft::internal;

namespace {

// Eight ranks on each host.
Layout hosts_of_eight(int hosts, const std::vector<int32_t>& rails_of_one = {}) {
    Layout layout = layout_in_blocks(8 * hosts, hosts);
    for (int host = 0; host < hosts && !rails_of_one.empty(); ++host)
        layout.rails.insert(layout.rails.end(), rails_of_one.begin(), rails_of_one.end());
    return layout;
}

LinkCosts with_links(int links) {
    LinkCosts costs = network_link_costs(1, 400'000);
    costs.net_links = links;
    return costs;
}

double us_of(const char* name, Collective collective, const Layout& layout, const LinkCosts& costs, size_t bytes) {
    const Algorithm* row = registry::find_algorithm(name, collective);
    REQUIRE(row);
    return row->predicted_us(layout, costs, bytes);
}

}  // namespace

TEST_CASE("ranks share their host's links by their rails, or else by their places", "[network]") {
    const Layout plain = hosts_of_eight(3), in_turns = hosts_of_eight(3, {0, 1, 0, 1, 0, 1, 0, 1}),
                 halves = hosts_of_eight(3, {0, 0, 0, 0, 1, 1, 1, 1}),
                 lone = hosts_of_eight(3, {1, 1, 1, 1, 1, 1, 1, -1});
    const LinkCosts one = with_links(1), two = with_links(2), each = with_links(8);
    for (int crossing = 0; crossing <= 8; ++crossing) {
        CAPTURE(crossing);
        CHECK(Network(plain, one, 0).on_a_link(crossing) == crossing);
        CHECK(Network(halves, one, 0).on_a_link(crossing) == crossing);
        CHECK(Network(plain, each, 0).on_a_link(crossing) == std::min(1, crossing));
        CHECK(Network(plain, two, 0).on_a_link(crossing) == (crossing + 1) / 2);
        CHECK(Network(in_turns, two, 0).on_a_link(crossing) == (crossing + 1) / 2);
        CHECK(Network(halves, two, 0).owners_on_a_link(crossing) == (crossing + 1) / 2);
        CHECK(Network(halves, one, 0).owners_on_a_link(crossing) == crossing);
        // The last ranks of a host, which send beyond its border, all use one link.
        CHECK(Network(halves, two, 0).on_a_link(crossing) == std::min(4, crossing));
        CHECK(Network(lone, two, 0).on_a_link(crossing) == std::min(7, crossing));
    }
    const Network network(halves, two, 0);
    CHECK(network.all_links() == 6);
    CHECK(network.link_of(3) == 0);
    CHECK(network.link_of(4) == 1);
    CHECK(network.link_of(8) == 2);
    CHECK(network.link_of(23) == 5);
    CHECK(Network(halves, one, 0).link_of(23) == 2);
    // A rank without a NIC near it uses the first.
    CHECK(Network(lone, two, 0).link_of(7) == 0);
    // A smaller host beside a larger one, whose ranks are dealt out.
    const Layout uneven{6, 0, {0, 1, 0, 0, 1, 0}};
    const Network unequal(uneven, two, 0);
    CHECK(unequal.ranks_a_host() == 4);
    CHECK(unequal.link_of(3) == 0);
    CHECK(unequal.link_of(4) == 3);
    CHECK(unequal.on_a_link(4) == 2);
}

TEST_CASE("data on several links of a host takes a share of the time, data of one rank does not", "[network]") {
    constexpr size_t bytes = 64 << 20;
    const Layout layout = hosts_of_eight(4);
    const LinkCosts one = with_links(1), each = with_links(8);
    const auto gain = [&](const char* name, Collective collective) {
        return us_of(name, collective, layout, one, bytes) / us_of(name, collective, layout, each, bytes);
    };
    CHECK(gain("all_pairs", Collective::all_to_all) > 3);
    CHECK(gain("halving_doubling", Collective::all_gather) > 2);
    // The root's own link carries all; a ring crosses each border by one rank.
    CHECK(gain("linear", Collective::scatter) == 1);
    CHECK(gain("ring", Collective::all_reduce) == 1);
    for (const Algorithm& row : registry::algorithms()) {
        if (row.on_demand || row.refusal(layout)) continue;
        INFO(name_of(row.collective) << ' ' << row.name);
        for (const size_t size : {size_t(8), size_t(64) << 10, bytes}) {
            CHECK(row.predicted_us(layout, each, size) <= row.predicted_us(layout, one, size));
            // Rails mean nothing if hosts have one link. All ranks on one rail are as many on one link.
            const Layout rails = hosts_of_eight(4, {0, 1, 2, 3, 4, 5, 6, 7}),
                         same = hosts_of_eight(4, {2, 2, 2, 2, 2, 2, 2, 2});
            CHECK(row.predicted_us(rails, one, size) == row.predicted_us(layout, one, size));
            CHECK(row.predicted_us(same, each, size) == row.predicted_us(layout, one, size));
        }
    }
}

TEST_CASE("rounds between ranks nearby pass a border as often as they can", "[network]") {
    const Layout layout = hosts_of_eight(4);
    const LinkCosts costs = with_links(1);
    const Network network(layout, costs, 64);
    const double remote = network.message_us(true), within = network.message_us(false);
    const auto latency = [&](std::vector<int> distances) {
        Network::Rounds rounds;
        for (const int distance : distances) network.add_round(rounds, distance, 8, Network::ReceivedData::finished);
        return rounds.latency_us;
    };
    CHECK(latency({1}) == remote);
    CHECK(latency({1, 2, 4}) == Approx(remote + 2 * within));
    CHECK(latency({1, 2, 4, 8, 16}) == Approx(3 * remote + 2 * within));
    CHECK(latency({4, 4, 1}) == Approx(2 * remote + within));
    CHECK(latency({31, 30}) == Approx(remote + within));
}

TEST_CASE("a chain of processors that are a host each has ranks that share one work in turn", "[network]") {
    // Two a core, over loopback.
    const LinkCosts costs = network_link_costs(2, 0, true, true);
    const auto chain = [&](int ranks, size_t bytes) {
        return us_of("ring", Collective::broadcast, layout_in_blocks(ranks, ranks), costs, bytes);
    };
    const auto tree = [&](int ranks, size_t bytes) {
        return us_of("binomial_tree", Collective::broadcast, layout_in_blocks(ranks, ranks), costs, bytes);
    };
    // As measured: a chain of three always, of four for short and for very long messages.
    for (const size_t bytes : {8, 4 << 10, 64 << 10, 1 << 20, 4 << 20}) CHECK(chain(3, bytes) < tree(3, bytes));
    for (const size_t bytes : {8, 4 << 10, 4 << 20}) CHECK(chain(4, bytes) < tree(4, bytes));
    for (const size_t bytes : {16 << 10, 64 << 10}) CHECK(chain(4, bytes) > tree(4, bytes));
    // One more hop costs as much as a message without delays by other ranks of its core.
    CHECK(chain(5, 8) - chain(4, 8) < costs.net_latency_us);
    CHECK(us_of("ring", Collective::reduce, layout_in_blocks(4, 4), costs, 8) > chain(4, 8));
}
