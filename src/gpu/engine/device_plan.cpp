#include "src/gpu/engine/device_plan.hpp"

#include <algorithm>
#include <cstring>

#include "src/base/name_list.hpp"
#include "src/gpu/engine/device_calls.hpp"
#include "src/selector/fused_rows.hpp"
#include "src/selector/selector.hpp"

namespace weft::internal {

namespace {

// A block of 512 threads has 32 KiB in flight: four 16-byte loads per thread.
constexpr size_t peer_bytes_a_block = 32 << 10;
// The longest all-reduce by packets of fewer blocks than they can have: then their rounds leave the links idle.
constexpr size_t packet_bytes_of_few_blocks = 1 << 20;

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

BlockLimits BlockRules::limits_for(const BlockLimits& call) const {
    const int least = std::max(call.least > 0 ? call.least : asked.least, 1),
              wanted = call.most > 0 ? call.most : asked.most,
              most = std::min(wanted > 0 ? wanted : std::max(cuda::blocks_usual, least), room);
    return {std::min(least, most), most};
}

size_t BlockRules::packet_bytes_of(int blocks) const {
    return blocks >= cuda::packet_blocks ? packet_bytes : std::min(packet_bytes, packet_bytes_of_few_blocks);
}

std::string DevicePlan::text() const {
    return fmt::format("{}, {} block{} of {} threads{}", steps >= 0 ? algorithm.c_str() : cuda::name_of(body), blocks,
                       blocks == 1 ? "" : "s", threads,
                       steps >= 0 ? fmt::format(" over connections, in tiles of {} bytes", tile_bytes) : "");
}

namespace {

using cuda::Body;

bool has(const DeviceLayout& layout, std::initializer_list<Body> bodies) {
    return std::all_of(bodies.begin(), bodies.end(),
                       [&](Body body) { return (cuda::needs(body) & ~layout.support.capabilities) == 0; });
}

// The fused techniques for a collective in messages whose whole has so many bytes.
FusedTechniques techniques_of(const DeviceLayout& layout, Collective collective, size_t bytes) {
    const NameList allowed(layout.rules.names_for(collective, bytes));
    const bool there = has_fused_kernels(layout);
    return {there && allowed.admits("one_shot") && has(layout, {Body::packet_one_shot, Body::peer_one_shot}),
            there && allowed.admits("two_shot") && has(layout, {Body::packet_two_shot, Body::peer_two_shot}),
            layout.block_rules.packet_bytes_of(layout.blocks_max)};
}

// Whether fused bodies support a collective in messages of any size. All-reduce alone needs two-shot for long messages.
bool fused_for_all_sizes(FusedTechniques techniques, Collective collective) {
    if (collective == Collective::all_reduce) return techniques.two_shot;
    return techniques.one_shot || (techniques.two_shot && !facts_of(collective).parted);
}

Body body_of(FusedKernel kernel) {
    switch (kernel) {
        case FusedKernel::packet_one_shot: return Body::packet_one_shot;
        case FusedKernel::packet_two_shot: return Body::packet_two_shot;
        case FusedKernel::peer_one_shot: return Body::peer_one_shot;
        case FusedKernel::peer_two_shot: return Body::peer_two_shot;
    }
    __builtin_unreachable();
}

DevicePlan plan_by(const StepAlgorithm& steps, DevicePlan plan, const DeviceLayout& layout) {
    plan.body = cuda::Body::steps;
    plan.steps = int(&steps - layout.steps.data());
    plan.algorithm = steps.algorithm->name;
    plan.blocks = steps.blocks;
    plan.tile_bytes = steps.tile_bytes(plan.operation.bytes(), layout.tile_bytes);
    const Choice choice{steps.algorithm, steps.parameters, {}, layout.rings};
    plan.operation.choice = (choice.hash() ^ plan.tile_bytes) * 0x100000001b3u ^ uint64_t(plan.blocks);
    return plan;
}

bool has_channels(const StepAlgorithm& steps, int asked) {
    return asked == 0 || !steps.rings || steps.parameters.channels == asked;
}

bool allowed(const StepAlgorithm& steps, const Operation& operation, const DeviceLayout& layout) {
    if (!has_channels(steps, layout.channels)) return false;
    const NameList list(layout.rules.names_for(operation.collective, operation.whole_bytes(layout.ranks)));
    return steps.algorithm->collective == operation.collective && list.admits(steps.algorithm->name);
}

// Predicts times with the algorithms' cost functions for a device's blocks, which rank the algorithms correctly.
Result<DevicePlan> plan_by_steps(DevicePlan plan, const DeviceLayout& layout) {
    const StepAlgorithm* best = nullptr;
    const size_t bytes = plan.operation.whole_bytes(layout.ranks);
    for (const StepAlgorithm& one : layout.steps)
        if (allowed(one, plan.operation, layout) && !one.algorithm->of_user &&
            (!best || one.predicted_us(bytes) < best->predicted_us(bytes)))
            best = &one;
    if (!best) {
        const auto excluded = layout.excluded.find(plan.operation.collective);
        return fail(
            error::gpu_not_served, "{}{} on device memory of {} ranks{} is supported by no algorithm{}{}{}",
            layout.algo.empty()
                ? ""
                : fmt::format("{} is {}: ", layout.of_call ? "algo of the call's config" : "WEFT_ALGO", layout.algo),
            name_of(plan.operation.collective), layout.ranks,
            layout.hosts > 1 ? fmt::format(" on {} hosts", layout.hosts) : "",
            layout.algo.empty() ? "" : " that it admits", excluded == layout.excluded.end() ? "" : "; ",
            excluded == layout.excluded.end() ? "" : excluded->second);
    }
    return plan_by(*best, std::move(plan), layout);
}

// The first user's algorithm for this message; null: none.
const StepAlgorithm* of_user(const Operation& operation, const DeviceLayout& layout) {
    for (const StepAlgorithm& one : layout.steps)
        if (one.algorithm->of_user && allowed(one, operation, layout) &&
            not_meant_for(*one.algorithm, operation, layout.ranks).empty())
            return &one;
    return nullptr;
}

void set_grid(DevicePlan& plan, size_t bytes, size_t bytes_a_block, const DeviceLayout& layout) {
    const size_t blocks = std::max(size_t(layout.blocks_min), (bytes + bytes_a_block - 1) / bytes_a_block),
                 most = size_t(std::min(layout.blocks_max, cuda::blocks_of(plan.body)));
    plan.blocks = int(std::min(blocks, most));
    plan.operation.choice = (uint64_t(plan.body) + 1) | uint64_t(plan.blocks) << 8 | uint64_t(plan.threads) << 24;
}

Result<DevicePlan> plan_fused(DevicePlan plan, const DeviceLayout& layout) {
    const Operation& operation = plan.operation;
    const size_t whole = operation.whole_bytes(layout.ranks);
    // If all ranks reach each other, no step algorithm is known to beat two_shot at any size.
    const bool steps = std::any_of(layout.steps.begin(), layout.steps.end(), [&](const StepAlgorithm& one) {
        return allowed(one, operation, layout) && !one.algorithm->of_user;
    });
    const FusedRow* const row =
        choose_fused(operation, layout.ranks, techniques_of(layout, operation.collective, whole), steps);
    if (!row) return plan_by_steps(std::move(plan), layout);
    const MulticastUse use = layout.support.multicast;
    const bool always = use == multicast_always,
               pays = always || (use == multicast_if_faster && multicast_pays(operation));
    plan.body = pays && cuda::multicast_serves(operation, layout.support.capabilities, !always) ? Body::multicast
                                                                                                : body_of(row->kernel);
    if (plan.body == Body::multicast) {
        set_grid(plan, whole, peer_bytes_a_block, layout);
        return plan;
    }
    switch (row->kernel) {
        case FusedKernel::packet_one_shot: set_grid(plan, operation.bytes(), cuda::packet_bytes_a_block, layout); break;
        case FusedKernel::packet_two_shot:
            set_grid(plan, whole, size_t(cuda::threads_max) * (is_integer(weftDataType_t(operation.type)) ? 8 : 16),
                     layout);
            break;
        case FusedKernel::peer_one_shot:
        case FusedKernel::peer_two_shot: set_grid(plan, whole, peer_bytes_a_block, layout); break;
    }
    return plan;
}

}  // namespace

bool needs_steps(const DeviceLayout& layout, Collective collective) {
    const std::vector<size_t> sizes = layout.rules.borders();
    return std::any_of(sizes.begin(), sizes.end(), [&](size_t bytes) {
        const NameList names(layout.rules.names_for(collective, bytes));
        const bool named = std::any_of(names.allowed.begin(), names.allowed.end(),
                                       [](std::string_view name) { return name != "one_shot" && name != "two_shot"; });
        return named || !fused_for_all_sizes(techniques_of(layout, collective, bytes), collective);
    });
}

DeviceLayout layout_preferring(const DeviceLayout& made, const CallPreference& wanted, const Layout& ranks,
                               std::span<const Algorithm> rows) {
    const auto& [algo, channels, blocks] = wanted;
    DeviceLayout layout = made;
    layout.algo = algo;
    layout.of_call = true;
    if (blocks != BlockLimits()) {
        const BlockLimits limits = made.block_rules.limits_for(blocks);
        layout.blocks_min = limits.least;
        layout.blocks_max = limits.most;
    }
    layout.channels = channels;
    layout.rules = AlgoRules(algo, ranks, rows);
    const auto exclude = [&](const Algorithm& row, const std::string& why) {
        std::string& excluded = layout.excluded[row.collective];
        excluded += fmt::format("{}{}: {}", excluded.empty() ? "" : "; ", row.name, why);
    };
    for (const StepAlgorithm& steps : layout.steps)
        if (!has_channels(steps, channels))
            exclude(*steps.algorithm,
                    fmt::format("{} channels were made with the communicator (WEFT_CHANNELS), and the "
                                "call asks for {}",
                                steps.parameters.channels, channels));
    const std::vector<size_t> sizes = layout.rules.borders();
    for (const Algorithm& row : rows) {
        const bool named = std::any_of(sizes.begin(), sizes.end(), [&](size_t bytes) {
            const NameList names(layout.rules.names_for(row.collective, bytes));
            return std::find(names.allowed.begin(), names.allowed.end(), row.name) != names.allowed.end();
        });
        const bool there = std::any_of(layout.steps.begin(), layout.steps.end(),
                                       [&](const StepAlgorithm& steps) { return steps.algorithm == &row; });
        const auto place = made.excluded.find(row.collective);
        const bool explained = place != made.excluded.end() &&
                               ("; " + place->second).find(fmt::format("; {}: ", row.name)) != std::string::npos;
        const std::string_view name = row.name;
        if (named && !there && !explained && !row.on_demand && has_device_form(row.collective) && name != "one_shot" &&
            name != "two_shot")
            exclude(row,
                    "its connections are made with the communicator, if WEFT_ALGO, or algo of its config, names it or "
                    "admits nothing else");
    }
    return layout;
}

Operation served_as(const Operation& operation) {
    Operation served = operation;
    if (operation.collective != Collective::barrier) return served;
    served.collective = Collective::all_reduce;
    served.count = 0;
    return served;
}

Result<DevicePlan> plan_on_device(const Operation& operation, const DeviceLayout& layout) {
    DevicePlan plan;
    if (operation.collective == Collective::barrier) {
        auto served = plan_on_device(served_as(operation), layout);
        if (!served) return served;
        served->operation.collective = operation.collective;
        served->operation.count = operation.count;
        return served;
    }
    plan.operation = operation;
    plan.operation.space = Space::device;
    plan.threads = layout.threads;
    if (const StepAlgorithm* const steps = of_user(operation, layout)) return plan_by(*steps, std::move(plan), layout);
    return plan_fused(std::move(plan), layout);
}

}  // namespace weft::internal
