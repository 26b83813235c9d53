// gpu_bench.cpp: how fast the kernels are on this GPU, virtual ranks in one grid: each technique and size beside the
// bound by the bytes that it moves at the speed of a device copy. Nothing that could fail. Lines that begin with
// "result: " are for tools/gpu-check.sh: what|value|goal|met.
#include <algorithm>
#include <chrono>
#include <functional>

#include "tests/executor/wild_inputs.hpp"
#include "tests/gpu/device_ranks.hpp"

namespace weft::test {
namespace {

using cuda::Body;

double now_us() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Microseconds for each of many, one behind the other in the stream; the best of five.
double pace_us(cuda::Stream& stream, int times, const std::function<void()>& enqueue) {
    Gpu& gpu = Gpu::get();
    const auto begin = require(cuda::Event::create(gpu.context, cuda::Event::Kind::timing));
    const auto end = require(cuda::Event::create(gpu.context, cuda::Event::Kind::timing));
    double best = 1e30;
    enqueue();
    for (int round = 0; round < (small() ? 1 : 5); ++round) {
        require(begin.record(stream.handle()));
        for (int i = 0; i < times; ++i) enqueue();
        require(end.record(stream.handle()));
        require(end.synchronize());
        best = std::min(best, 1e3 * double(require(end.milliseconds_since(begin))) / times);
    }
    return best;
}
// From the launch until the host knows that it is done; the median.
double latency_us(cuda::Stream& stream, const std::function<void()>& enqueue) {
    std::vector<double> all;
    const int times = small() ? 3 : 2000;
    for (int i = 0; i < times; ++i) {
        const double begin = now_us();
        enqueue();
        require(stream.synchronize());
        all.push_back(now_us() - begin);
    }
    std::nth_element(all.begin(), all.begin() + times / 2, all.end());
    return all[size_t(times / 2)];
}

std::string size_text(size_t bytes) {
    return bytes >= 1 << 20 ? fmt::format("{} MiB", bytes >> 20)
           : bytes >= 1024  ? fmt::format("{} KiB", bytes >> 10)
                            : fmt::format("{} B", bytes);
}

// Bytes read and written each microsecond, thousandths: GB/s.
double copy_gbs() {
    Gpu& gpu = Gpu::get();
    const size_t bytes = small() ? 1 << 20 : 512 << 20;
    const auto from = require(cuda::DeviceMemory::allocate(gpu.context, bytes)),
               to = require(cuda::DeviceMemory::allocate(gpu.context, bytes));
    auto stream = require(cuda::Stream::create(gpu.context));
    const double us = pace_us(stream, small() ? 2 : 10, [&] {
        require(copy_async(gpu.driver, to.address(), from.address(), bytes, stream.handle()));
    });
    return 2 * double(bytes) / us / 1e3;
}

// The quickest of some shapes. All blocks of a grid have to find room at once.
double best_us(DeviceRanks& ranks, weftDataType_t type, size_t bytes, Body body) {
    Gpu& gpu = Gpu::get();
    const int ranks_count = ranks.ranks(), multiprocessors = gpu.properties.multiprocessors;
    const int room =
        multiprocessors * require(gpu.kernel(virtual_entry_point(body, type)).blocks_per_multiprocessor(512, 0));
    double best = 1e30;
    for (const int blocks : {1, 2, 4, 8, 16, 32, 64}) {
        if (blocks > cuda::blocks_of(body) || blocks * ranks_count > room) continue;
        if (blocks > 1 && bytes / size_t(blocks) < 512) continue;
        if (blocks < 8 && bytes >= 8 << 20 && blocks * ranks_count * 4 < multiprocessors) continue;
        ranks.bind_bytes(type, bytes, {body, blocks, 512, false, Placing::grid});
        const int times = small() ? 1 : bytes >= 8 << 20 ? 5 : 100;
        best = std::min(best, pace_us(ranks.stream(0), times, [&] { ranks.launch(); }));
    }
    return best;
}

void print_result(const std::string& what, const std::string& value, const std::string& goal, bool met) {
    fmt::print("result: {}|{}|{}|{}\n", what, value, goal, goal.empty() ? "" : met ? "met" : "missed");
}

}  // namespace

// Not among the tests: gpu_test "[bench]".
TEST_CASE("how fast the kernels are", "[.][bench]") {
    Gpu& gpu = Gpu::get();
    const double copy = copy_gbs();
    fmt::print("{}, sm_{}, {} multiprocessors; device copy {:.0f} GB/s read and written\n", gpu.properties.name,
               gpu.properties.sm, gpu.properties.multiprocessors, copy);

    fmt::print("\n8 bytes, launch to done, us\nranks  technique         launch  graph\n");
    double quickest = 1e30, quickest_graph = 1e30;  // of 8 ranks
    for (const int n : {2, 4, 8})
        for (const Body body : {Body::packet_one_shot, Body::packet_two_shot, Body::peer_two_shot}) {
            DeviceRanks ranks(n, 4096);
            ranks.bind_bytes(weftFloat32, 8, {body, 1, 64, false, Placing::grid});
            const double plain = latency_us(ranks.stream(0), [&] { ranks.launch(); });
            require(cuda::Graph::begin(gpu.driver, ranks.stream(0).handle()));
            ranks.launch();
            const cuda::Graph graph = require(cuda::Graph::end(gpu.driver, ranks.stream(0).handle()));
            const double replayed =
                latency_us(ranks.stream(0), [&] { require(graph.launch(ranks.stream(0).handle())); });
            fmt::print("{:5}  {:16} {:7.2f} {:6.2f}\n", n, name_of(body), plain, replayed);
            if (n < 8) continue;
            quickest = std::min(quickest, plain);
            quickest_graph = std::min(quickest_graph, replayed);
        }

    // Of what the goal speaks of: 64 MiB and more.
    std::map<std::pair<Body, int>, double> least_share;
    const std::vector<size_t> sizes =
        small() ? std::vector<size_t>{1 << 10, 64 << 10}
                : std::vector<size_t>{1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20, 256 << 20};
    const size_t long_bytes = small() ? 64 << 10 : 64 << 20;
    fmt::print(
        "\nfloat, sum: us, and of the bytes moved the share of the copy's speed\nranks  size      technique            "
        " us  share\n");
    for (const int n : {2, 4, 8}) {
        DeviceRanks ranks(n, sizes.back());
        for (const size_t bytes : sizes)
            for (const Body body :
                 {Body::packet_one_shot, Body::packet_two_shot, Body::peer_two_shot, Body::local_reduce}) {
                const bool packets = body == Body::packet_one_shot || body == Body::packet_two_shot;
                if (packets && bytes > 1 << 20) continue;
                const double us = best_us(ranks, weftFloat32, bytes, body);
                // Every rank reads its share of all messages and writes it to all; the local reduction is done by each.
                const double moved =
                    body == Body::local_reduce ? double(n) * (n + 1) * double(bytes) : 2.0 * n * double(bytes);
                const double share = 100 * moved / us / 1e3 / copy;
                fmt::print("{:5}  {:8}  {:16} {:8.1f}{}\n", n, size_text(bytes), name_of(body), us,
                           packets ? "" : fmt::format("  {:3.0f} %", share));
                if (packets || bytes < long_bytes) continue;
                double& least = least_share.try_emplace({body, n}, share).first->second;
                least = std::min(least, share);
            }
    }

    fmt::print("\npeer_two_shot by type, 8 ranks, {}\n", size_text(long_bytes));
    DeviceRanks ranks(8, long_bytes);
    std::string by_type;
    for (const weftDataType_t type : virtual_types) {
        const double us = best_us(ranks, type, long_bytes, Body::peer_two_shot);
        const double share = 100 * 16.0 * double(long_bytes) / us / 1e3 / copy;
        fmt::print("{:10} {:8.1f} us  {:3.0f} %\n", name_of(type), us, share);
        by_type += fmt::format("{}{} {:.0f} %", by_type.empty() ? "" : ", ", name_of(type), share);
    }

    fmt::print("\n");
    print_result("device copy, read and written", fmt::format("{:.0f} GB/s", copy), "", true);
    print_result("8 B, 8 virtual ranks, launch to done", fmt::format("{:.2f} us", quickest), "below 8 us",
                 quickest < 8);
    print_result("8 B, 8 virtual ranks, launch to done, graph", fmt::format("{:.2f} us", quickest_graph), "below 6 us",
                 quickest_graph < 6);
    for (const auto& [which, share] : least_share)
        print_result(fmt::format("{} of {} and more, {} virtual ranks", name_of(which.first), size_text(long_bytes),
                                 which.second),
                     fmt::format("{:.0f} % of the copy", share), "85 %", share >= 85);
    print_result(fmt::format("peer_two_shot by type, {}, 8 virtual ranks", size_text(long_bytes)), by_type, "", true);
}

}  // namespace weft::test
