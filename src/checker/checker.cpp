#include "src/checker/checker.hpp"

#include <algorithm>

#include "src/checker/proof.hpp"
#include "src/schedule/validate.hpp"

namespace weft::internal {

Status check(int ranks, std::span<const CheckedOperation> operations, const CheckOptions& options, Proved* proved) {
    CheckedSet set(ranks, operations, options);
    WEFT_TRY(set.load());
    Proof proof(set);
    Status status = proof.run();
    if (proved) {
        proved->steps += proof.steps();
        proved->in_rank_order &= proof.results().in_rank_order();
        proved->orders_differ |= proof.results().orders_differ();
    }
    return status;
}

// One schedule a rank, sorted by rank.
static Status sort_set(std::span<const Schedule> schedules, std::vector<const Schedule*>& by_rank) {
    if (schedules.empty()) return fail(error::schedule_set, "there is no schedule");
    by_rank.assign(schedules.size(), nullptr);
    for (const Schedule& schedule : schedules) {
        WEFT_TRY(validate(schedule));
        if (schedule.ranks != int(schedules.size()))
            return fail(error::schedule_set, "rank {} is one of {} ranks, but there are {} schedules", schedule.rank,
                        schedule.ranks, schedules.size());
        if (by_rank[schedule.rank]) return fail(error::schedule_set, "rank {} has two schedules", schedule.rank);
        by_rank[schedule.rank] = &schedule;
    }
    return ok();
}

static std::vector<bool> every_second(int ranks) {
    std::vector<bool> chosen(ranks);
    for (int rank = 0; rank < ranks; rank += 2) chosen[rank] = true;
    return chosen;
}

Status check_set(std::span<const Schedule> schedules, const DirectMode& mode, const CheckOptions& options,
                 Proved* proved) {
    std::vector<const Schedule*> by_rank;
    WEFT_TRY(sort_set(schedules, by_rank));
    const int ranks = int(schedules.size());
    const std::vector<bool> nobody(ranks, false), everybody(ranks, true), some = every_second(ranks);
    auto has_fused = [](const Schedule& schedule) {
        for (const Block& block : schedule.blocks)
            for (const Instruction& it : block.instructions)
                if (kind_of(it.opcode) == OpcodeKind::fused) return true;
        return false;
    };
    std::vector<CheckedOperation> forms;
    if (std::any_of(schedules.begin(), schedules.end(), has_fused)) {
        // The instructions of fused ranks depend on the exported buffers; elementary ones cannot follow.
        if (!std::all_of(schedules.begin(), schedules.end(), is_one_shot) &&
            !std::all_of(schedules.begin(), schedules.end(), is_two_shot))
            return fail(error::schedule_set,
                        "one_shot and two_shot need all ranks: some ranks have one and others do not");
        const bool pipelined = std::all_of(schedules.begin(), schedules.end(), is_two_shot);
        for (const DirectMode& each : {DirectMode{}, {some, false}, {everybody, false}, {everybody, true}}) {
            forms.push_back({.schedule = [&by_rank, each](int rank) { return expand(*by_rank[rank], each); },
                             .runs = 2,
                             .mode = each});
            if (pipelined && !each.direct(ranks))
                forms.push_back(
                    {.schedule = [&by_rank, each](int rank) { return expand_pipelined(*by_rank[rank], each, 4); },
                     .mode = each});
        }
    } else {
        // Enough runs to use a slot of the flag block again, with blocks as far apart as possible.
        int apart = 0;
        for (const Schedule& schedule : schedules)
            for (const Block& block : schedule.blocks)
                for (const Instruction& it : block.instructions) apart = std::max(apart, int(it.after.ago));
        const bool reuses = apart > 0 || !schedules[0].shared_ranks.empty();
        const int runs = reuses ? apart + options.flag_slots + 1 : 2;
        forms.push_back({.schedule = [&by_rank](int rank) { return *by_rank[rank]; }, .runs = runs, .mode = mode});
    }
    // Chunk bounds are multiples of 64 bytes. 64 bytes make one chunk, and half as many lines as ranks make about half
    // of the chunks.
    const bool can_be_in_place = !facts_of(schedules[0].collective).transposes;
    for (CheckedOperation& form : forms) {
        for (const auto* in_place : {&nobody, &everybody, &some}) {
            if (!can_be_in_place && in_place != &nobody) continue;
            for (const size_t tile_bytes : {size_t(0), size_t(64), size_t(64) * (ranks / 2 + 1)}) {
                form.in_place = *in_place;
                form.tile_bytes = tile_bytes;
                const CheckedOperation twice[] = {form, form};
                WEFT_TRY(check(ranks, twice, options, proved));
            }
        }
    }
    return ok();
}

}  // namespace weft::internal
