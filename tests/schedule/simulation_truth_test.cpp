// The simulator against published results: NCCL's all-reduce on one host of eight GPUs, with NCCL's constants. The
// table is in perf/results/2026-11-25-simulator.md.
#include <cmath>
#include <cstdio>

#include "src/registry.hpp"
#include "src/simulator/hosts_fabric.hpp"
#include "src/simulator/simulator.hpp"
#include "tests/amount.hpp"
#include "tests/catch.hpp"

namespace weft::internal {
namespace {

struct Published {
    const char* host;
    size_t bytes;
    double us;
    bool judged = true;
};
constexpr double us_of(size_t bytes, double bus_gbs) { return double(bytes) * 1.75 / (bus_gbs * 1e3); }
constexpr size_t kib = 1 << 10, mib = 1 << 20;

constexpr Published published[] = {
    // 8xH100, NCCL's ring or tree as it chooses, up to 16 MiB; from 64 MiB on it uses the switch's sums, too.
    {"dgx-h100", 1 * kib, 15.5},
    {"dgx-h100", 16 * kib, 15.5},
    {"dgx-h100", 64 * kib, 17.8},
    {"dgx-h100", 256 * kib, 18.5},
    {"dgx-h100", 512 * kib, 21.5},
    {"dgx-h100", 1 * mib, 24.5},
    {"dgx-h100", 4 * mib, 50},
    {"dgx-h100", 16 * mib, 121},
    {"dgx-h100", 64 * mib, us_of(64 * mib, 359)},
    {"dgx-h100", 256 * mib, us_of(256 * mib, 429)},
    {"dgx-h100", 1024 * mib, us_of(1024 * mib, 481)},
    // The same without them, as NCCL's authors have it: github.com/NVIDIA/nccl-tests/issues/212.
    {"dgx-h100", 1024 * mib, us_of(1024 * mib, 370)},
    // 8xA100-SXM4-40GB, one process for eight GPUs, whose launches the short ones wait for.
    {"dgx-a100", 1 * mib, 78.77, false},
    {"dgx-a100", 4 * mib, 131.1, false},
    {"dgx-a100", 16 * mib, 293.6, false},
    {"dgx-a100", 64 * mib, 657.2},
    {"dgx-a100", 256 * mib, 2338.9},
    {"dgx-a100", 1024 * mib, 8139.9},
};

// NCCL runs a tree on as many channels as a ring, and takes shorter chunks for short messages. Blocks are therefore no
// limit here, and the best of some tiles counts.
double predicted_us(const char* host, size_t bytes, const char* algorithm, Protocol protocol) {
    const Algorithm& row = *registry::find_algorithm(algorithm, Collective::all_reduce);
    const bool tree = row.tree;
    HostKind kind = with_protocol(*find_host_kind(host), protocol, tree);
    kind.block_bytes_per_us = unlimited;
    kind.step_us = 0;
    kind.slot_bytes = 12 * mib;
    const HostsFabric fabric(kind, 1, 8);
    double best = unlimited;
    for (size_t tile = tree ? 64 * kib : bytes; tile <= std::max(bytes, 64 * kib); tile *= 2) {
        SimulatedCall call;
        call.bytes = bytes;
        call.wanted_tile_bytes = tile;
        call.schedule = [&](int rank) { return row.build({8, rank, {}}, {}); };
        auto found = simulate(fabric, call);
        REQUIRE(found);
        best = std::min(best, found->us);
    }
    return best;
}

}  // namespace

TEST_CASE("with NCCL's constants predictions are near NCCL's published times", "[simulator]") {
    double logs = 0, worst = 1;
    int count = 0;
    std::printf("%-10s %12s %12s %12s %7s  %s\n", "host", "bytes", "published us", "predicted us", "ratio", "by");
    for (const Published& row : published) {
        if (test::small() && test::sanitized && row.bytes > 64 * mib) continue;
        double best = unlimited;
        std::string by;
        for (const char* algorithm : {"ring", "double_binary_tree"})
            for (const auto& [protocol, name] :
                 {std::pair{Protocol::simple, "simple"}, {Protocol::ll128, "ll128"}, {Protocol::ll, "ll"}}) {
                const double us = predicted_us(row.host, row.bytes, algorithm, protocol);
                if (us < best) by = std::string(algorithm) + " " + name;
                best = std::min(best, us);
            }
        const double ratio = best / row.us;
        std::printf("%-10s %12zu %12.1f %12.1f %7.2f  %s%s\n", row.host, row.bytes, row.us, best, ratio, by.c_str(),
                    row.judged ? "" : ", not judged");
        if (!row.judged) continue;
        logs += std::abs(std::log(ratio));
        worst = std::max({worst, ratio, 1 / ratio});
        ++count;
    }
    std::printf("geometric mean of the distance %.3f, worst %.2f\n", std::exp(logs / count), worst);
    CHECK(std::exp(logs / count) < 1.25);
    CHECK(worst < 2);
}

}  // namespace weft::internal
