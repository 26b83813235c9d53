#include "src/comm/device_plan.hpp"

#include <algorithm>
#include <cstring>

#include "src/base/name_list.hpp"

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
    return fmt::format("{}, {} block{} of {} threads", cuda::name_of(body), blocks, blocks == 1 ? "" : "s", threads);
}

Result<DevicePlan> plan_on_device(const Operation& operation, const DeviceLayout& layout) {
    const NameList allowed(layout.algo);
    const bool one_shot = allowed.admits("one_shot"), two_shot = allowed.admits("two_shot");
    if (!one_shot && !two_shot)
        return fail(weftInvalidUsage,
                    "WEFT_ALGO is {}: device memory is served by one_shot and two_shot, and it admits neither",
                    layout.algo);
    const size_t bytes = operation.bytes(), most_one_shot = layout.ranks <= 2 ? one_shot_bytes_of_two : one_shot_bytes;
    DevicePlan plan;
    plan.operation = operation;
    plan.operation.space = Space::device;
    plan.threads = cuda::threads_max;
    size_t bytes_a_block = packet_bytes_a_block;
    if (!two_shot || (one_shot && bytes <= most_one_shot)) {
        plan.body = cuda::Body::packet_one_shot;
    } else if (bytes <= packets_bytes) {
        plan.body = cuda::Body::packet_two_shot;
        bytes_a_block *= size_t(layout.ranks);
    } else {
        plan.body = cuda::Body::peer_two_shot;
        plan.staged = true;
        bytes_a_block = peer_bytes_a_block;
    }
    const size_t blocks = std::max<size_t>(1, (bytes + bytes_a_block - 1) / bytes_a_block),
                 most = size_t(std::min(layout.blocks_max, cuda::blocks_of(plan.body)));
    plan.blocks = int(std::min(blocks, most));
    plan.operation.choice = (uint64_t(plan.body) + 1) | uint64_t(plan.blocks) << 8 | uint64_t(plan.threads) << 24;
    return plan;
}

}  // namespace weft
