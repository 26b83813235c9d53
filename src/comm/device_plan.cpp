#include "src/comm/device_plan.hpp"

#include <algorithm>
#include <cstring>

#include "src/base/name_list.hpp"
#include "src/selector/selector.hpp"

namespace weft {

namespace {

// None of these has been measured on a GPU by Weft. They follow what others have published for 8 GPUs on one NVSwitch.
// Everybody sends everything to everybody: ranks times the bytes, one way through the links, until that is longer than
// a second way. Two ranks send no more so than in two steps.
constexpr size_t one_shot_bytes = 16 << 10, one_shot_bytes_of_two = 64 << 10;
// Packets take twice the bytes, and no barrier.
constexpr size_t packets_bytes = 512 << 10;
// Of a message for each block, in one round: half of its lines.
constexpr size_t packet_bytes_a_block = 2 << 10;
// A block of 512 threads has 32 KiB under way with four 16-byte loads of each.
constexpr size_t peer_bytes_a_block = 32 << 10;

}  // namespace

int blocks_together(std::span<const DeviceFacts> facts) {
    int least = cuda::blocks_max;
    for (const DeviceFacts& one : facts) {
        const auto sharing = std::count_if(facts.begin(), facts.end(), [&](const DeviceFacts& other) {
            return memcmp(one.uuid, other.uuid, sizeof one.uuid) == 0;
        });
        least = std::min(least, one.resident_blocks / int(sharing));
    }
    return least;
}

std::string DevicePlan::text() const {
    return fmt::format("{}, {} block{} of {} threads{}", steps >= 0 ? algorithm.c_str() : cuda::name_of(body), blocks,
                       blocks == 1 ? "" : "s", threads,
                       steps >= 0 ? fmt::format(" over connections, in tiles of {} bytes", tile_bytes) : "");
}

bool needs_steps(int ranks, int hosts, const std::string& algo) {
    return hosts > 1 || ranks > cuda::ranks_max || !NameList(algo).admits("two_shot");
}

namespace {

DevicePlan plan_by(const StepAlgorithm& steps, DevicePlan plan, const DeviceLayout& layout) {
    plan.body = cuda::Body::steps;
    plan.steps = int(&steps - layout.steps.data());
    plan.algorithm = steps.algorithm->name;
    plan.blocks = steps.blocks;
    plan.tile_bytes = steps.tile_bytes(plan.operation.bytes(), layout.tile_bytes);
    const Choice choice{steps.algorithm, steps.parameters};
    plan.operation.choice = (choice.hash() ^ plan.tile_bytes) * 0x100000001b3u ^ uint64_t(plan.blocks);
    return plan;
}

// By what the algorithm's predictions make of a device's blocks: good for the order of things.
Result<DevicePlan> plan_by_steps(DevicePlan plan, const DeviceLayout& layout) {
    const StepAlgorithm* best = nullptr;
    const size_t bytes = plan.operation.bytes();
    for (const StepAlgorithm& one : layout.steps)
        if (!one.algorithm->of_user && (!best || one.predicted_us(bytes) < best->predicted_us(bytes))) best = &one;
    if (!best)
        return fail(weftInvalidUsage, "{}device memory of {} ranks{} is served by none of what {}{}{}",
                    layout.algo.empty() ? "" : fmt::format("WEFT_ALGO is {}: ", layout.algo), layout.ranks,
                    layout.hosts > 1 ? fmt::format(" on {} hosts", layout.hosts) : "",
                    layout.algo.empty() ? "there is" : "it admits", layout.excluded.empty() ? "" : "; ",
                    layout.excluded);
    return plan_by(*best, std::move(plan), layout);
}

// The first of the user's that is for this message; null: none is.
const StepAlgorithm* of_user(const Operation& operation, const DeviceLayout& layout) {
    for (const StepAlgorithm& one : layout.steps)
        if (one.algorithm->of_user && not_meant_for(*one.algorithm, operation, layout.ranks).empty()) return &one;
    return nullptr;
}

}  // namespace

Result<DevicePlan> plan_on_device(const Operation& operation, const DeviceLayout& layout) {
    const NameList allowed(layout.algo);
    const bool fused = layout.ranks <= cuda::ranks_max && layout.hosts == 1,
               one_shot = fused && allowed.admits("one_shot"), two_shot = fused && allowed.admits("two_shot");
    const size_t bytes = operation.bytes(), most_one_shot = layout.ranks <= 2 ? one_shot_bytes_of_two : one_shot_bytes;
    DevicePlan plan;
    plan.operation = operation;
    plan.operation.space = Space::device;
    plan.threads = cuda::threads_max;
    if (const StepAlgorithm* const steps = of_user(operation, layout)) return plan_by(*steps, std::move(plan), layout);
    // Where each rank reaches each, nothing that goes from rank to rank is known to beat two_shot, at any size.
    const bool steps = std::any_of(layout.steps.begin(), layout.steps.end(),
                                   [](const StepAlgorithm& one) { return !one.algorithm->of_user; });
    if (!two_shot && (!one_shot || (bytes > most_one_shot && steps))) return plan_by_steps(plan, layout);
    size_t bytes_a_block = packet_bytes_a_block;
    if (!two_shot || (one_shot && bytes <= most_one_shot)) {
        plan.body = cuda::Body::packet_one_shot;
    } else if (bytes <= packets_bytes) {
        plan.body = cuda::Body::packet_two_shot;
        bytes_a_block *= size_t(layout.ranks);
    } else {
        plan.body = cuda::Body::peer_two_shot;
        bytes_a_block = peer_bytes_a_block;
    }
    const size_t blocks = std::max<size_t>(1, (bytes + bytes_a_block - 1) / bytes_a_block),
                 most = size_t(std::min(layout.blocks_max, cuda::blocks_of(plan.body)));
    plan.blocks = int(std::min(blocks, most));
    plan.operation.choice = (uint64_t(plan.body) + 1) | uint64_t(plan.blocks) << 8 | uint64_t(plan.threads) << 24;
    return plan;
}

}  // namespace weft
