// device_choice_test.cpp: what Weft chooses between hosts of GPUs, held against the simulator: of what kernels run there
// it takes one that is hardly slower than the best.
#include <cmath>

#include "tests/catch.hpp"
#include "tools/simulate_choice.hpp"

using namespace weft;
using namespace weft::tools;

namespace {

struct Regret {
    double ratio = 1;  // chosen time over least time
    std::string text;
};

Regret regret_of(const SimulateRequest& request) {
    const auto scene = scene_of(request);
    REQUIRE(scene.ok());
    const auto choice = weft_choice(request, *scene);
    REQUIRE(choice.ok());
    double best_us = unlimited, chosen_us = unlimited;
    std::string best;
    for (const Algorithm* row : scene->rows) {
        // Of all pairs' many messages each costs the proxy's thread some microseconds, which the simulator does not count.
        const bool chosen = choice->algorithm == row->name;
        if (!choice->is_able(row) || (!chosen && std::string_view(row->name) == "all_pairs")) continue;
        const auto fabric = fabric_of(*scene, *row);
        REQUIRE(fabric.ok());
        const auto found = simulate(**fabric, call_of(request, *scene, *row));
        REQUIRE(found.ok());
        if (found->us < best_us) best_us = found->us, best = row->name;
        if (chosen) chosen_us = found->us;
    }
    REQUIRE(chosen_us < unlimited);
    return {chosen_us / best_us,
            fmt::format("{} of {} bytes, {} ranks on {} hosts: {} {:.0f} us, {} {:.0f} us", request.collective,
                        request.bytes, scene->layout.ranks, scene->hosts, choice->algorithm, chosen_us, best, best_us)};
}

}  // namespace

// Of hosts whose devices share an adapter, as the selector takes it: what goes abroad goes through the host's sockets.
TEST_CASE("between hosts of GPUs what is chosen is hardly slower than the best of what kernels run", "[schedule]") {
    for (const char* collective : {"all_reduce", "broadcast", "reduce"}) {
        double logarithms = 0;
        int cases = 0;
        Regret worst;
        for (const char* machine : {"a100_bridge", "pcie_4_gpus"})
            for (const int hosts : {2, 3, 4, 8})
                for (uint64_t bytes = 1 << 10; bytes <= 64 << 20; bytes *= 4) {
                    SimulateRequest request;
                    request.algorithm = "all";
                    request.collective = collective;
                    request.bytes = bytes;
                    request.hosts = hosts;
                    request.topology = std::string(WEFT_SCHEDULES) + "/../topology/machines/" + machine + ".xml";
                    // A socket's latency, and from a kernel to it and back.
                    request.constants = {"net_us=16"};
                    const Regret regret = regret_of(request);
                    logarithms += std::log(regret.ratio);
                    ++cases;
                    if (regret.ratio > worst.ratio) worst = regret;
                }
        const double mean = std::exp(logarithms / cases);
        INFO(collective << ": mean " << mean << ", worst " << worst.ratio << ": " << worst.text);
        CHECK(mean < 1.25);
        CHECK(worst.ratio < 2.2);
    }
}
