// gpu_bench.cpp: the speed of the kernels on this GPU, as virtual ranks in one grid. Each technique, some schedules,
// and each size stand beside a bound: the bytes moved, at the speed of a device copy. It asserts nothing. A line
// `result: NAME|value|goal|met` is for tools/gpu-check.sh.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <functional>

#include "tests/executor/wild_inputs.hpp"
#include "tests/gpu/device_ranks.hpp"

namespace weft::internal::test {
namespace {

using cuda::Body;

double now_us() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Microseconds for each of many, one behind the other in the stream; the best of five.
double pace_us(cuda::Stream& stream, int times, const std::function<void()>& enqueue) {
    Gpu& gpu = Gpu::get();
    const auto begin = require(cuda::Event::create(gpu.context, cuda::Event::EventUse::timing));
    const auto end = require(cuda::Event::create(gpu.context, cuda::Event::EventUse::timing));
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

// A body and what it is asked for: an all-reduce, a collective of parts, or an all-reduce by an algorithm's steps.
struct Technique {
    Body body = Body::packet_one_shot;
    const char* algorithm = "one_shot";
    Collective collective = Collective::all_reduce;

    std::string name() const {
        return body == Body::steps                    ? fmt::format("steps, {}", algorithm)
               : collective == Collective::all_reduce ? std::string(name_of(body))
                                                      : fmt::format("{}, {}", name_of(body), name_of(collective));
    }
    bool by_packets() const { return body == Body::packet_one_shot || body == Body::packet_two_shot; }
    int parts(int ranks) const { return parts_of(collective, ranks); }
    Call call(int ranks, int channels) const {
        Call call;
        call.algorithm = registry::find_algorithm(algorithm, collective);
        call.channels = channels;
        call.inputs.resize(size_t(ranks));
        call.tile_bytes = 64 << 20;  // as much as the slots allow
        return call;
    }
};
const Technique techniques[] = {{Body::packet_one_shot},
                                {Body::packet_two_shot},
                                {Body::peer_two_shot},
                                {Body::peer_one_shot, "one_shot", Collective::all_gather},
                                {Body::peer_one_shot, "one_shot", Collective::reduce_scatter},
                                {Body::peer_one_shot, "one_shot", Collective::all_to_all},
                                {Body::steps, "ring"},
                                {Body::steps, "double_binary_tree"},
                                {Body::steps, "halving_doubling"},
                                {Body::local_reduce}};

// Bytes that a rank's blocks read and write, in wholes of the message: chunks out of slots and buffers and into them.
double moved_by(const Schedule& schedule) {
    double chunks = 0;
    for (const Block& block : schedule.blocks)
        for (const Instruction& line : block.instructions) {
            double touched = receives(line.opcode) + sends(line.opcode) + reads_source(line.opcode);
            if (writes_targets(line.opcode)) touched += std::popcount(line.targets);
            chunks += touched * line.repeat * line.count;
        }
    return chunks / schedule.chunks;
}
// The same of all ranks; one-shot packets count twice, since half of a line is the epoch. Of two-shot packets each full line
// is stored, loaded and cleared, also those to oneself. A second read comes from caches.
double moved_by(const Technique& technique, int ranks) {
    const double n = ranks;
    switch (technique.body) {
        case Body::packet_one_shot: return n * (2 + 4 * (n - 1));
        case Body::packet_two_shot: return 2 * n + 6 * n;
        case Body::peer_two_shot: return 2 * n;
        // Each rank reads a whole, and writes it or, reduced, a part of it.
        case Body::peer_one_shot: return technique.collective == Collective::reduce_scatter ? n + 1 : 2 * n;
        case Body::local_reduce: return n * (n + 1);
        case Body::multicast:  // not in a grid
        case Body::steps: break;
    }
    double all = 0;
    const Call call = technique.call(ranks, 1);
    for (int rank = 0; rank < ranks; ++rank) all += moved_by(call.algorithm->build(call.layout(rank), {.channels = 1}));
    return all;
}

int64_t room_of(const Technique& technique, weftDataType_t type) {
    Gpu& gpu = Gpu::get();
    return gpu.properties.multiprocessors *
           require(gpu.kernel(virtual_entry_point(technique.body, type)).blocks_per_multiprocessor(512, 0));
}
// A kernel that gave up was quick, too.
double paced_us(DeviceRanks& ranks, size_t bytes) {
    const double us = pace_us(ranks.stream(0), small() ? 1 : bytes >= 8 << 20 ? 5 : 100, [&] { ranks.launch(); });
    CHECK_FALSE(ranks.failed());
    return us;
}
// The quickest of some numbers of channels, each a block or a few of each rank; 0: no schedule finds room.
double best_steps_us(DeviceRanks& ranks, weftDataType_t type, size_t bytes, const Technique& technique) {
    double best = 0;
    for (const int channels : {1, 2, 4, 8, 16}) {
        const Call call = technique.call(ranks.ranks(), channels);
        if (call.algorithm->refusal(call.layout(0)) || (small() && channels > 2)) continue;
        if (channels > 1 && bytes / size_t(channels * ranks.ranks()) < 512) continue;
        ranks.bind_bytes(type, bytes, {Body::steps, 0, 512, false, Placing::grid}, &call);
        if (ranks.blocks() > cuda::blocks_max || ranks.blocks() * ranks.ranks() > room_of(technique, type)) continue;
        const double us = paced_us(ranks, bytes);
        best = best > 0 ? std::min(best, us) : us;
    }
    return best;
}
// The quickest of some shapes. All blocks of a grid have to find room at once. `bytes` of the whole.
double best_us(DeviceRanks& ranks, weftDataType_t type, size_t bytes, const Technique& technique) {
    if (technique.body == Body::steps) return best_steps_us(ranks, type, bytes, technique);
    const int ranks_count = ranks.ranks(), multiprocessors = Gpu::get().properties.multiprocessors;
    const Call call = technique.call(ranks_count, 1);
    const size_t part_bytes = bytes / size_t(technique.parts(ranks_count));
    double best = 1e30;
    for (const int blocks : {1, 2, 4, 8, 16, 32, 64}) {
        if (blocks > cuda::blocks_of(technique.body) || blocks * ranks_count > room_of(technique, type)) continue;
        if (blocks > 1 && bytes / size_t(blocks) < 512) continue;
        if (blocks < 8 && bytes >= 8 << 20 && blocks * ranks_count * 4 < multiprocessors) continue;
        ranks.bind_bytes(type, part_bytes, {technique.body, blocks, 512, false, Placing::grid}, &call);
        best = std::min(best, paced_us(ranks, bytes));
    }
    return best;
}

void print_result(const std::string& what, const std::string& value, const std::string& goal, bool met) {
    fmt::print("result: {}|{}|{}|{}\n", what, value, goal, goal.empty() ? "" : met ? "met" : "missed");
}

double print_copy() {
    Gpu& gpu = Gpu::get();
    const double copy = copy_gbs();
    fmt::print("{}, sm_{}, {} multiprocessors; device copy {:.0f} GB/s read and written\n", gpu.properties.name,
               gpu.properties.sm, gpu.properties.multiprocessors, copy);
    print_result("device copy, read and written", fmt::format("{:.0f} GB/s", copy), "", true);
    CHECK((copy > 0 && std::isfinite(copy)));
    return copy;
}

// 8 bytes; the goals are those of all-reduces of 8 ranks.
void print_latencies(const std::vector<int>& rank_counts) {
    Gpu& gpu = Gpu::get();
    fmt::print("\n8 bytes (of parts: each), launch to done, us\nranks  {:29} launch  graph\n", "technique");
    double quickest = 1e30, quickest_graph = 1e30;
    for (const int n : rank_counts)
        for (const Technique& technique : techniques) {
            if (technique.body == Body::local_reduce) continue;
            DeviceRanks ranks(n, 4096);
            const Call call = technique.call(n, 1);
            const bool steps = technique.body == Body::steps;
            ranks.bind_bytes(weftFloat32, 8, {technique.body, steps ? 0 : 1, 64, false, Placing::grid}, &call);
            if (ranks.blocks() * n > room_of(technique, weftFloat32)) continue;
            const double plain = latency_us(ranks.stream(0), [&] { ranks.launch(); });
            require(cuda::Graph::begin(gpu.driver, ranks.stream(0).handle()));
            ranks.launch();
            const cuda::Graph graph = require(cuda::Graph::end(gpu.driver, ranks.stream(0).handle()));
            const double replayed =
                latency_us(ranks.stream(0), [&] { require(graph.launch(ranks.stream(0).handle())); });
            fmt::print("{:5}  {:29} {:6.2f} {:6.2f}\n", n, technique.name(), plain, replayed);
            CHECK_FALSE(ranks.failed());
            CHECK((plain > 0 && replayed > 0));
            if (n < 8 || technique.collective != Collective::all_reduce) continue;
            quickest = std::min(quickest, plain);
            quickest_graph = std::min(quickest_graph, replayed);
        }
    fmt::print("\n");
    CHECK(quickest < 1e30);  // some kernel found room
    print_result("8 B, 8 virtual ranks, launch to done", fmt::format("{:.2f} us", quickest), "below 8 us",
                 quickest < 8);
    print_result("8 B, 8 virtual ranks, launch to done, graph", fmt::format("{:.2f} us", quickest_graph), "below 6 us",
                 quickest_graph < 6);
}

// The goal is that of messages from here on.
size_t long_bytes() { return small() ? 64 << 10 : 64 << 20; }

void print_bandwidths(const std::vector<int>& rank_counts, const std::vector<size_t>& sizes, double copy) {
    std::map<std::pair<int, int>, double> least_share;  // of long messages, by technique and ranks
    fmt::print(
        "\nfloat, sum, size of the whole: us, and the share of the copy's speed at which bytes are moved, one-shot "
        "packets "
        "twice,\nof what lies in caches more than all of it\nranks  size      {:29}       us  share\n",
        "technique");
    for (const int n : rank_counts) {
        DeviceRanks ranks(n, sizes.back());
        for (const size_t bytes : sizes)
            for (int number = 0; number < int(std::size(techniques)); ++number) {
                const Technique& technique = techniques[number];
                if (technique.by_packets() && bytes > 1 << 20) continue;
                const double us = best_us(ranks, weftFloat32, bytes, technique);
                if (us == 0) {
                    fmt::print("{:5}  {:8}  {:29} finds no room\n", n, size_text(bytes), technique.name());
                    continue;
                }
                const double share = 100 * moved_by(technique, n) * double(bytes) / us / 1e3 / copy;
                fmt::print("{:5}  {:8}  {:29} {:8.1f}  {:3.0f} %\n", n, size_text(bytes), technique.name(), us, share);
                if (technique.by_packets() || bytes < long_bytes()) continue;
                double& least = least_share.try_emplace({number, n}, share).first->second;
                least = std::min(least, share);
            }
    }
    fmt::print("\n");
    CHECK_FALSE(least_share.empty());
    // The goal is of what moves no byte but from the inputs and into the outputs.
    for (const auto& [which, share] : least_share) {
        const Technique& technique = techniques[which.first];
        const bool goal = technique.body != Body::steps;
        print_result(
            fmt::format("{} of {} and more, {} virtual ranks", technique.name(), size_text(long_bytes()), which.second),
            fmt::format("{:.0f} % of the copy", share), goal ? "85 %" : "", share >= 85);
    }
}

void print_types(double copy) {
    fmt::print("\npeer_two_shot by type, 8 ranks, {}\n", size_text(long_bytes()));
    DeviceRanks ranks(8, long_bytes());
    std::string by_type;
    for (const weftDataType_t type : virtual_types) {
        const double us = best_us(ranks, type, long_bytes(), {Body::peer_two_shot});
        const double share = 100 * 16.0 * double(long_bytes()) / us / 1e3 / copy;
        fmt::print("{:10} {:8.1f} us  {:3.0f} %\n", name_of(type), us, share);
        by_type += fmt::format("{}{} {:.0f} %", by_type.empty() ? "" : ", ", name_of(type), share);
    }
    fmt::print("\n");
    print_result(fmt::format("peer_two_shot by type, {}, 8 virtual ranks", size_text(long_bytes())), by_type, "", true);
}

}  // namespace

// Not among the tests: gpu_test "[bench]"; "[brief]", seconds of it; "[copy]".
TEST_CASE("how fast the device copies", "[.][copy]") { print_copy(); }

TEST_CASE("how fast the kernels are, of 8 ranks and one long message", "[.][brief]") {
    const double copy = print_copy();
    print_latencies({8});
    print_bandwidths({8}, {long_bytes()}, copy);
}

TEST_CASE("how fast the kernels are", "[.][bench]") {
    const double copy = print_copy();
    const std::vector<int> rank_counts = {2, 4, 8};
    print_latencies(rank_counts);
    print_bandwidths(
        rank_counts,
        small() ? std::vector<size_t>{1 << 10, 64 << 10}
                : std::vector<size_t>{1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20, 256 << 20},
        copy);
    print_types(copy);
}

}  // namespace weft::internal::test
