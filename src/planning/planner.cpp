#include "src/planning/planner.hpp"

#include <algorithm>

#include "src/base/cpu.hpp"
#include "src/base/log.hpp"
#include "src/base/per_process.hpp"
#include "src/registry.hpp"
#include "src/schedule/stable_sends.hpp"
#include "src/schedule/tiles.hpp"
#include "src/selector/algo_rules.hpp"

namespace weft::internal {

namespace {

// For connections on one host: larger slots leave the second-level cache, smaller ones cost more task switches.
constexpr size_t slot_bytes_here = 128 << 10;

// For one-shot: below this a second wait costs more than it saves (perf/results).
constexpr size_t exported_least_bytes = 8 << 10;

// Sizes for which CMA is faster than staging (perf/results).
constexpr size_t cma_least_bytes = 64 << 10, cma_most_bytes = 8 << 20;
constexpr int cma_most_ranks = 2;

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

// If so, messages are zero-copy whether or not CMA is allowed.
bool of_one_process(const Segment& group) {
    for (int rank = 1; rank < group.ranks(); ++rank)
        if (!group.same_process(0, rank)) return false;
    return true;
}

bool has_shared_ranks(const Algorithm& of_user) { return !of_user.of_user->schedules[0].shared_ranks.empty(); }

const char* placement_text(bool apart) { return apart ? "several NUMA domains" : "one NUMA domain of a host"; }

}  // namespace

Planner::Planner(Segment& group, const net::Identity* identity, int rank, FlagBlock* flag_block,
                 const CpuKernels& cpu_kernels, int64_t streaming_bytes, std::shared_ptr<const Catalog> catalog,
                 std::shared_ptr<const Machines> machines, std::shared_ptr<const Tuning> tuning)
    : rank_(rank),
      flag_block_(flag_block),
      cpu_kernels_(&cpu_kernels),
      streaming_bytes_(streaming_bytes),
      catalog_(std::move(catalog)),
      two_slots_(std::none_of(catalog_->of_users().begin(), catalog_->of_users().end(), has_shared_ranks)),
      agreed_(group.header().agreed),
      machines_(std::move(machines)),
      layout_(machines_->layout(rank)),
      costs_(group.one_host()
                 ? host_link_costs(group.ranks(), group.cores(), agreed_.cma_messages != 0 || of_one_process(group))
                 : network_link_costs(group.header().facts.ranks_per_core, group.header().facts.link_mbps,
                                      agreed_.cma_messages != 0, group.header().facts.machines == 1),
             std::move(tuning)),
      preferences_{{agreed_.algo, int(agreed_.channels), agreed_.deterministic != 0}},
      direct_access_(group, rank, agreed_.direct != 0),
      cma_(group, rank),
      slot_stores_(size_t(group.ranks())),
      last_level_(last_level_for(group.cpus(), group.cores())),
      connector_(group, rank,
                 {.identity = identity,
                  .slot_bytes = group.one_host() ? slot_bytes_here : costs_.links.net_slot_bytes,
                  .heap_used = &heap_used_,
                  .uses_cma = agreed_.cma_messages != 0,
                  .maps_arenas = agreed_.direct != 0}) {
    if (rank == 0)
        for (const std::string& note : machines_->notes()) WEFT_LOG_RANK(rank, info, init, "{}", note);
    const std::optional<bool> apart = machines_->apart();
    if (apart && costs_.tuning && costs_.tuning->has_other_placement(*apart)) {
        costs_.tuning = std::make_shared<const Tuning>(costs_.tuning->with_placement(*apart));
        if (rank == 0)
            WEFT_LOG_RANK(rank, info, init,
                          "WEFT_TUNE_FILE: ranks here run on {}, so times of ranks on {} are left out{}",
                          placement_text(*apart), placement_text(!*apart),
                          costs_.tuning->of_shared_memory() ? "" : ": inside a host the built-in costs are used");
    }
    // A tuning of shared memory includes the distance of the cores.
    const bool measured = costs_.tuning && costs_.tuning->of_shared_memory();
    if (apart.value_or(false) && !measured) costs_.links.signal_us = LinkCosts::far_signal_us;
}

Result<uint8_t> Planner::preference(const std::string& algo, int channels) {
    WEFT_TRY(catalog_->check("algo", algo));
    const size_t number = find(algo, channels);
    if (number > UINT8_MAX)
        return fail(error::usage_limit, "calls on a communicator may name {} different lists of algorithms at most",
                    UINT8_MAX);
    if (number == preferences_.size()) preferences_.push_back({algo, channels, agreed_.deterministic != 0});
    return uint8_t(number);
}

size_t Planner::find(const std::string& algo, int channels) const {
    const auto place = std::find_if(preferences_.begin(), preferences_.end(), [&](const Preferences& known) {
        return known.algo == algo && known.channels == channels;
    });
    return size_t(place - preferences_.begin());
}

Result<Choice> Planner::choose(const Operation& operation, uint8_t preference) {
    auto choice = select(operation, layout_, costs_, preferences_[preference], catalog_->rows());
    if (!choice) return choice;
    choice->rings = machines_->rings();
    // The check uses agreed facts and comes before connecting, so all ranks refuse and none waits.
    const Schedule& schedule = binding(*choice).schedule;
    const size_t most = largest_tile_bytes(schedule, connector_.slot_bytes(schedule.fifo_depth));
    if (most < line_bytes && operation.bytes() > most)
        return fail(error::algorithm_none,
                    "{} sends {} of {} ranks' parts in one message, which is too large for its slots; exclude it by "
                    "WEFT_ALGO=^{}",
                    choice->algorithm->name, schedule.span, layout_.ranks, choice->algorithm->name);
    // All ranks choose alike, so one of them logs it.
    if (rank_ == 0) {
        WEFT_LOG_RANK(rank_, info, algo, "{}",
                      choice_text(operation, layout_, *choice,
                                  candidates(operation, layout_, costs_, preferences_[preference], catalog_->rows())));
        WEFT_LOG_RANK(rank_, trace, algo, "{}", explain(operation, preference));
    }
    return choice;
}

Binding& Planner::binding(const Choice& choice) {
    Binding& binding = bindings_[{choice.algorithm, choice.parameters.channels, choice.parameters.root}];
    if (binding.schedule.blocks.empty()) {
        binding.schedule = choice.algorithm->schedule(layout_, choice.parameters);
        binding.stable_sends = find_stable_sends(binding.schedule);
    }
    return binding;
}

Result<std::unique_ptr<PreparedPlan>> Planner::plan(const Operation& operation, const Choice& choice,
                                                    Binding& binding) {
    Plan plan;
    plan.operation = operation;
    plan.operation.choice = choice.hash();
    plan.operation_fingerprint = fingerprint(plan.operation);
    plan.schedule = &binding.schedule;
    plan.ends = binding.ends;
    for (const BlockEnds& ends : plan.ends) plan.networked |= ends.source_is_remote || ends.target_is_remote;
    plan.in_one_place = choice.algorithm->sums == Sums::in_rank_order;
    plan.cpu_kernels = cpu_kernels_;
    plan.slot_stores = slot_stores_.data();
    const size_t parts = size_t(binding.schedule.parts()), bytes = operation.bytes(), whole = parts * bytes;
    TileBounds bounds{.wanted = size_t(std::max<int64_t>(0, agreed_.tile_bytes)),
                      .slot_bytes = connector_.slot_bytes(binding.schedule.fifo_depth),
                      .shared_slot_bytes = FlagBlock::slot_bytes_max,
                      .two_slots = two_slots_};
    if (bounds.wanted == 0 && choice.algorithm->tile_bytes)
        bounds.wanted = choice.algorithm->tile_bytes(layout_, costs_.links, whole);
    plan.tile_bytes = std::min(tile_bytes_of(binding.schedule, bytes, bounds), bytes);
    plan.tiles = tiles_of(bytes, plan.tile_bytes);
    plan.pipelined =
        pays_pipelined(binding.schedule, bytes, plan.tile_bytes) && !plan.scaled() && !operation.calls_function();
    if (!binding.schedule.shared_ranks.empty()) {
        plan.flag_block = flag_block_;
        const bool in_order = two_slots_ && reads_in_order(binding.schedule) && !plan.pipelined;
        plan.rotation = FlagBlock::rotation(round_to_line(shared_slot_bytes(binding.schedule, plan.tile_bytes)),
                                            layout_.ranks, in_order);
        WEFT_TRY(flag_block_->reserve(plan.rotation.bytes(), plan.rotation.slots));
    }
    if (has_scratch(binding.schedule)) {
        const size_t scratch = weft::internal::scratch_bytes(binding.schedule, plan.tile_bytes);
        if (scratch_.size() < scratch) scratch_.resize(scratch);
        plan.scratch = &scratch_;
    }
    plan.zero_copy_cma = &cma_;
    if (agreed_.direct && bytes >= costs_.links.zero_copy_least_bytes) {
        plan.stable_sends = binding.stable_sends;
        plan.zero_copy_least = costs_.links.zero_copy_least_bytes;
        // Reductions do not use CMA: the sender copies into the slot in parallel, which is faster than the receiver
        // copying first.
        plan.zero_copy_by_cma = bytes <= costs_.links.zero_copy_most_bytes && !facts_of(operation.collective).reduces;
    }
    if (is_two_shot(binding.schedule) || (is_one_shot(binding.schedule) && bytes >= exported_least_bytes)) {
        plan.direct_access = &direct_access_;
        plan.exports_buffers = agreed_.direct != 0 && !plan.scaled();
        if (agreed_.cma_messages && plan.exports_buffers && bytes >= cma_least_bytes && bytes <= cma_most_bytes &&
            layout_.ranks <= cma_most_ranks)
            plan.cma = &cma_;
    }
    plan.stores = whole >= streamed_bytes(layout_.ranks) ? Stores::streaming : Stores::ordinary;
    return std::make_unique<PreparedPlan>(std::move(plan));
}

// If the job's buffers exceed the last-level cache, stored data would be evicted from it anyway.
size_t Planner::streamed_bytes(int ranks) const {
    return streaming_bytes_ >= 0 ? size_t(streaming_bytes_) : *last_level_ / 2 / size_t(ranks) + 1;
}

std::string Planner::explain(const Operation& operation, uint8_t preference) const {
    return weft::internal::explain(operation, layout_, costs_, preferences_[preference], catalog_->rows());
}

}  // namespace weft::internal
