// choice_test.cpp: Weft's choices between hosts, of GPUs and of processors, held against the simulator. A choice is
// hardly slower than the best algorithm that can serve.
#include <cmath>
#include <vector>

#include "tests/catch.hpp"
#include "tools/simulate_choice.hpp"

using namespace weft::internal;
using namespace weft::internal::tools;

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
        const bool chosen = choice->algorithm == row->name;
        if (!choice->is_able(row)) continue;
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

// Over sizes, 1 KiB to 64 MiB: the geometric mean, and the worst.
void check_regrets(const char* collective, const std::vector<SimulateRequest>& machines, double mean_most,
                   double worst_most) {
    double logarithms = 0;
    int cases = 0;
    Regret worst;
    for (SimulateRequest request : machines)
        for (uint64_t bytes = 1 << 10; bytes <= 64 << 20; bytes *= 4) {
            request.algorithm = "all";
            request.collective = collective;
            request.bytes = bytes;
            const Regret regret = regret_of(request);
            logarithms += std::log(regret.ratio);
            ++cases;
            if (regret.ratio > worst.ratio) worst = regret;
        }
    const double mean = std::exp(logarithms / cases);
    INFO(collective << ": mean " << mean << ", worst " << worst.ratio << ": " << worst.text);
    CHECK(mean < mean_most);
    CHECK(worst.ratio < worst_most);
}

constexpr const char* collectives[] = {"all_reduce",     "broadcast",  "reduce", "all_gather",
                                       "reduce_scatter", "all_to_all", "gather", "scatter"};

}  // namespace

// Hosts whose devices share an adapter, as the selector takes it: data for another host goes through the host's
// sockets.
TEST_CASE("between hosts of GPUs the choice is hardly slower than the best that kernels run", "[schedule]") {
    std::vector<SimulateRequest> machines;
    for (const char* machine : {"a100_bridge", "pcie_4_gpus"})
        for (const int hosts : {2, 3, 4, 8}) {
            SimulateRequest& request = machines.emplace_back();
            request.hosts = hosts;
            request.topology = std::string(WEFT_SCHEDULES) + "/../topology/machines/" + machine + ".xml";
            // A socket's latency, and from a kernel to it and back.
            request.constants = {"net_us=16"};
        }
    for (const char* collective : collectives) check_regrets(collective, machines, 1.25, 2.2);
}

// As connections would have it that leave by each device's own adapter.
TEST_CASE("between hosts with an adapter for each device the choice is hardly slower than the best", "[schedule]") {
    std::vector<SimulateRequest> machines;
    for (const int hosts : {2, 4, 8}) {
        SimulateRequest& request = machines.emplace_back();
        request.host = "dgx-h100";
        request.hosts = hosts;
    }
    for (const char* collective : collectives) check_regrets(collective, machines, 1.12, 1.7);
}

// Over RDMA the one thread of a rank's proxy is the limit of many short messages.
TEST_CASE("between hosts of GPUs over RDMA the choice is hardly slower than the best", "[schedule]") {
    std::vector<SimulateRequest> machines;
    for (const int hosts : {2, 4, 8}) {
        SimulateRequest& request = machines.emplace_back();
        request.host = "dgx-h100";
        request.network = "ndr";
        request.hosts = hosts;
    }
    for (const char* collective : collectives) check_regrets(collective, machines, 1.1, 1.3);
}

TEST_CASE("between hosts of processors the choice is hardly slower than the best", "[schedule]") {
    std::vector<SimulateRequest> machines;
    for (const int hosts : {2, 4, 8})
        for (const int ranks_a_host : {1, 8}) {
            SimulateRequest& request = machines.emplace_back();
            request.host = "cpu-10g";
            request.hosts = hosts;
            request.ranks = hosts * ranks_a_host;
        }
    for (const char* collective : collectives) check_regrets(collective, machines, 1.15, 1.6);
}
