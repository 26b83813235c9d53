// The largest machine that can be simulated, with time and memory: printed, not judged.
//     schedule_test "[scale]"
#include <sys/resource.h>

#include <chrono>
#include <cstdio>

#include "src/registry.hpp"
#include "src/simulator/hosts_fabric.hpp"
#include "src/simulator/simulator.hpp"
#include "tests/catch.hpp"

namespace weft::internal {

TEST_CASE("thousands of hosts", "[.scale]") {
    struct Row {
        const char* algorithm;
        int hosts;
        size_t bytes;
    };
    constexpr size_t mib = 1 << 20;
    const HostKind& kind = *find_host_kind("dgx-h100");
    std::printf("%-28s %8s %12s %14s %12s %10s %8s %8s\n", "all-reduce", "ranks", "bytes", "predicted us", "simulated",
                "events", "s", "MiB");
    for (const Row& row : {Row{"ring", 1250, 1024 * mib},
                           {"halving_doubling", 1250, 1024 * mib},
                           {"two_level_halving_doubling", 1250, 64 * mib},
                           {"two_level_ring", 1250, 64 * mib},
                           {"double_binary_tree", 1250, 64 * mib},
                           {"two_level_tree", 1250, 64 * mib},
                           {"two_level_ring", 1250, 1024 * mib},
                           {"double_binary_tree", 12'500, mib},
                           {"ring", 12'500, 10'240 * mib},
                           {"halving_doubling", 12'500, 1024 * mib}}) {
        const Algorithm& algorithm = *registry::find_algorithm(row.algorithm, Collective::all_reduce);
        const HostsFabric fabric(kind, row.hosts, kind.ranks);
        Layout layout{fabric.ranks(), 0, fabric.hosts()};
        LinkCosts costs;
        costs.net_slot_bytes = kind.slot_bytes;
        SimulatedCall call;
        call.bytes = row.bytes;
        if (algorithm.tile_bytes) call.wanted_tile_bytes = algorithm.tile_bytes(layout, costs, row.bytes);
        call.schedule = [&](int rank) {
            layout.rank = rank;
            return algorithm.build(layout, {.channels = 2});
        };
        const auto begin = std::chrono::steady_clock::now();
        const auto found = simulate(fabric, call);
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        REQUIRE(found);
        rusage used{};
        getrusage(RUSAGE_SELF, &used);
        std::printf("%-28s %8d %12zu %14.1f %12d %10llu %8.1f %8ld\n", row.algorithm, fabric.ranks(), row.bytes,
                    found->us, found->ranks_simulated, static_cast<unsigned long long>(found->events), seconds,
                    used.ru_maxrss >> 10);
        std::fflush(stdout);
    }
}

}  // namespace weft::internal
