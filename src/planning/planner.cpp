#include "src/planning/planner.hpp"

#include <algorithm>

#include "src/base/cpu.hpp"
#include "src/base/per_process.hpp"
#include "src/peer_access/limits.hpp"
#include "src/registry.hpp"
#include "src/schedule/stable_sends.hpp"
#include "src/schedule/tiles.hpp"
#include "src/segment/host_cpus.hpp"

namespace weft::internal {

namespace {

// For connections on one host: larger slots leave the second-level cache, smaller ones cost more task switches.
constexpr size_t slot_bytes_here = 128 << 10;

// The share of a core in a last-level cache that many cores, or guests of a virtual machine, share.
constexpr size_t last_level_share = 16 << 20;

// Shared by the process, because reading it would take a good part of the time of a split.
std::shared_ptr<const size_t> last_level_for(const CpuSet& cpus, int cores) {
    const std::pair key{cpus, cores};
    return *shared_by_process<const size_t>(key, [&]() -> Result<std::shared_ptr<const size_t>> {
        const size_t bytes = cache_bytes(3, cpus);
        return std::make_shared<const size_t>(std::min(last_level_share * size_t(cores), bytes > 0 ? bytes : SIZE_MAX));
    });
}

// The transport that reaches peers on other hosts, if it uses the user's memory by itself; else null.
const Transport* registering_transport(const Segment& group, int rank) {
    for (int peer = 0; peer < group.ranks(); ++peer) {
        if (group.local(peer)) continue;
        const Transport* const agreed = registry::agreed_transport(group, rank, peer);
        if (agreed && (agreed->can(Capability::registers) || agreed->can(Capability::one_sided))) return agreed;
    }
    return nullptr;
}

bool has_shared_ranks(const Algorithm& of_user) { return !of_user.of_user->schedules[0].shared_ranks.empty(); }

}  // namespace

Planner::Planner(Segment& group, const net::Identity* identity, int rank, FlagBlock* flag_block,
                 const CpuKernels& cpu_kernels, int64_t streaming_bytes, std::shared_ptr<const Catalog> catalog,
                 std::shared_ptr<const Machines> machines, std::shared_ptr<const Tuning> tuning)
    : flag_block_(flag_block),
      cpu_kernels_(&cpu_kernels),
      streaming_bytes_(streaming_bytes),
      chooser_(group, rank, std::move(catalog), std::move(machines), std::move(tuning)),
      two_slots_(
          std::none_of(chooser_.catalog().of_users().begin(), chooser_.catalog().of_users().end(), has_shared_ranks)),
      agreed_(group.header().agreed),
      direct_access_(group, rank, agreed_.direct != 0),
      peer_access_(group, rank, {.arenas = agreed_.direct != 0, .cma = agreed_.cma_messages != 0}),
      cma_(group, rank),
      run_memory_{.slot_stores = std::vector<SlotStores>(size_t(group.ranks())), .scratch = {}},
      last_level_(last_level_for(cpus_of(group), cores_of(group))),
      user_memory_(registering_transport(group, rank), rank),
      connector_(group, rank,
                 {.identity = identity,
                  .slot_bytes = group.one_host() ? slot_bytes_here : chooser_.links().net_slot_bytes,
                  .heap_used = &heap_used_,
                  .peer_access = &peer_access_}) {}

Result<Binding*> Planner::bind(const Operation& operation, const Choice& choice) {
    Binding& binding = bindings_[{choice.algorithm, choice.parameters.channels, choice.parameters.root}];
    if (binding.schedule.blocks.empty()) {
        binding.schedule = choice.algorithm->schedule(chooser_.layout(), choice.parameters);
        binding.stable_sends = find_stable_sends(binding.schedule);
        binding.early_receives = find_early_receives(binding.schedule);
        binding.connections.depth = binding.schedule.fifo_depth;
        for (const Block& block : binding.schedule.blocks)
            binding.connections.wanted.push_back({block.channel, block.source, block.target});
    }
    const size_t most = largest_tile_bytes(binding.schedule, connector_.slot_bytes(binding.schedule.fifo_depth));
    if (most < line_bytes && operation.bytes() > most)
        return fail(error::algorithm_none,
                    "{} sends {} of {} ranks' parts in one message, which is too large for its slots; exclude it by "
                    "WEFT_ALGO=^{}",
                    choice.algorithm->name, binding.schedule.span, chooser_.layout().ranks, choice.algorithm->name);
    return &binding;
}

Result<std::unique_ptr<PreparedPlan>> Planner::plan(const Operation& operation, const Choice& choice,
                                                    Binding& binding) {
    Plan plan;
    plan.operation = operation;
    plan.operation.choice = choice.hash();
    plan.operation_fingerprint = fingerprint(plan.operation);
    plan.schedule = &binding.schedule;
    plan.ends = binding.connections.ends;
    for (BlockEnds& ends : plan.ends) {
        plan.networked |= ends.source_is_remote || ends.target_is_remote;
        const Transport* const transport = ends.target_is_remote ? ends.target_transport : nullptr;
        ends.target_posts = transport && transport == user_memory_.transport() && transport->can(Capability::posts);
        if (ends.target_posts) plan.zero_copy.posts = {&binding.stable_sends, &user_memory_};
        const Transport* const from = ends.source_is_remote ? ends.source_transport : nullptr;
        ends.source_offers = from && from == user_memory_.transport() && from->can(Capability::offers);
        if (ends.source_offers)
            plan.zero_copy.offers = {&binding.early_receives, &user_memory_, uint64_t(binding.connections.depth)};
    }
    plan.in_one_place = choice.algorithm->sums == Sums::in_rank_order;
    plan.cpu_kernels = cpu_kernels_;
    plan.slot_stores = run_memory_.slot_stores.data();
    const size_t parts = size_t(binding.schedule.parts()), bytes = operation.bytes(), whole = parts * bytes;
    TileBounds bounds{.wanted = size_t(std::max<int64_t>(0, agreed_.tile_bytes)),
                      .slot_bytes = connector_.slot_bytes(binding.schedule.fifo_depth),
                      .shared_slot_bytes = FlagBlock::slot_bytes_max,
                      .two_slots = two_slots_};
    if (bounds.wanted == 0 && choice.algorithm->tile_bytes)
        bounds.wanted = choice.algorithm->tile_bytes(chooser_.layout(), chooser_.links(), whole);
    plan.tile_bytes = std::min(tile_bytes_of(binding.schedule, bytes, bounds), bytes);
    plan.tiles = tiles_of(bytes, plan.tile_bytes);
    plan.two_shot.pipelined =
        pays_pipelined(binding.schedule, bytes, plan.tile_bytes) && !plan.scaled() && !operation.calls_function();
    if (!binding.schedule.shared_ranks.empty()) {
        plan.flags.block = flag_block_;
        const bool in_order = two_slots_ && reads_in_order(binding.schedule) && !plan.two_shot.pipelined;
        plan.flags.rotation = FlagBlock::rotation(round_to_line(shared_slot_bytes(binding.schedule, plan.tile_bytes)),
                                                  chooser_.layout().ranks, in_order);
        WEFT_TRY(flag_block_->reserve(plan.flags.rotation.bytes(), plan.flags.rotation.slots));
    }
    if (has_scratch(binding.schedule)) {
        const size_t scratch = weft::internal::scratch_bytes(binding.schedule, plan.tile_bytes);
        if (run_memory_.scratch.size() < scratch) run_memory_.scratch.resize(scratch);
        plan.scratch = &run_memory_.scratch;
    }
    plan.zero_copy.cma = &peer_access_.cma();
    if (agreed_.direct && bytes >= chooser_.links().zero_copy_least_bytes) {
        plan.zero_copy.stable_sends = binding.stable_sends;
        plan.zero_copy.least = chooser_.links().zero_copy_least_bytes;
        // Reductions do not use CMA: the sender copies into the slot in parallel, which is faster than the receiver
        // copying first.
        plan.zero_copy.by_cma =
            bytes <= chooser_.links().zero_copy_most_bytes && !facts_of(operation.collective).reduces;
    }
    if (is_two_shot(binding.schedule) || (is_one_shot(binding.schedule) && bytes >= peer_limits::exported_least)) {
        plan.two_shot.direct_access = &direct_access_;
        plan.two_shot.exports_buffers = agreed_.direct != 0 && !plan.scaled();
        if (agreed_.cma_messages && plan.two_shot.exports_buffers && bytes >= peer_limits::cma_two_shot_least &&
            bytes <= peer_limits::cma_two_shot_most && chooser_.layout().ranks <= peer_limits::cma_two_shot_ranks_most)
            plan.two_shot.cma = &cma_;
    }
    plan.stores = whole >= streamed_bytes(chooser_.layout().ranks) ? Stores::streaming : Stores::ordinary;
    return std::make_unique<PreparedPlan>(std::move(plan));
}

// If the job's buffers exceed the last-level cache, stored data would be evicted from it anyway.
size_t Planner::streamed_bytes(int ranks) const {
    return streaming_bytes_ >= 0 ? size_t(streaming_bytes_) : *last_level_ / 2 / size_t(ranks) + 1;
}

}  // namespace weft::internal
