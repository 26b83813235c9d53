#include "src/checker/checked_set.hpp"

#include <algorithm>

#include "src/checker/happens_before.hpp"
#include "src/schedule/validate.hpp"

namespace weft::internal {

// Bounds of one proof: about 1 GiB, about a minute.
static constexpr uint64_t cells_most = uint64_t(1) << 24;
static constexpr uint64_t clock_words_most = uint64_t(1) << 28;
static constexpr uint64_t steps_total_most = uint64_t(1) << 28;
static constexpr uint64_t messages_most = uint64_t(1) << 24;

CheckedSet::CheckedSet(int ranks, std::span<const CheckedOperation> operations, const CheckOptions& options)
    : ranks_(ranks), options_(options) {
    for (const CheckedOperation& call : operations) operations_.emplace_back().call = &call;
}

Status CheckedSet::load() {
    if (ranks_ < 1 || ranks_ > ranks_most) return fail(error::schedule_limit, "{} ranks cannot be checked", ranks_);
    if (operations_.size() >= operations_most)
        return fail(error::schedule_limit, "at most {} operations can be checked at once", operations_most);
    if (options_.flag_slots < 1) return fail(error::schedule_limit, "a flag block has at least 1 slot");
    flag_block_of_.assign(size_t(ranks_), -1);
    place_of_.assign(size_t(ranks_), 0);
    for (LoadedOperation& operation : operations_) WEFT_TRY(load_operation(operation));
    for (CheckedFlagBlock& flag_block : flag_blocks_) {
        members_most_ = std::max(members_most_, int(flag_block.ranks.size()));
        flag_block.first_phase = phases_;
        phases_ += size_t(flag_block.tiles) * 2;
    }
    return check_limits();
}

Status CheckedSet::load_operation(LoadedOperation& operation) {
    WEFT_TRY(load_schedules(operation));
    const Schedule& first = operation.schedules[0];
    if (operation.call->runs < 1 || int64_t(operation.call->runs) * first.tiles > tiles_most)
        return fail(error::schedule_limit, "an operation has 1..{} tiles", tiles_most);
    operation.tiles = operation.call->runs * first.tiles;
    operation.first_tile = tiles_;
    tiles_ += uint32_t(operation.tiles);
    WEFT_TRY(load_flag_blocks(operation));
    uint64_t cells = uint64_t(ranks_) * first.chunks * operation.tiles;
    for (const Schedule& schedule : operation.schedules)
        cells += uint64_t(schedule.scratch) + uint64_t(schedule.wide - 1) * schedule.chunks;
    if (cells > cells_most)
        return fail(error::schedule_limit, "{} chunks on {} ranks in {} tiles are too much to check", first.chunks,
                    ranks_, operation.tiles);
    for (const Schedule& schedule : operation.schedules)
        for (const Block& block : schedule.blocks)
            for (const Instruction& it : block.instructions) {
                // The product and the sum of all can be above 2^64.
                const double steps = double(it.repeat) * it.count * operation.call->runs *
                                     double(it.opcode == Opcode::reduce ? schedule.shared_ranks.size() : 1);
                if (steps > double(steps_total_most - steps_))
                    return fail(error::schedule_limit, "the schedules have too many steps to check");
                steps_ += uint64_t(steps);
            }
    return ok();
}

Status CheckedSet::check_limits() {
    const uint64_t width = uint64_t(members_most_) * blocks_;
    if (width * ranks_ * blocks_ > clock_words_most)
        return fail(error::schedule_limit, "{} ranks of {} blocks are too many to check", ranks_, blocks_);
    uint64_t releases = 0, deepest = options_.fifo_depth;
    for (const LoadedOperation& operation : operations_) {
        deepest = std::max<uint64_t>(deepest, operation.schedules[0].fifo_depth);
        for (const auto& blocks : operation.depended)
            for (const auto& steps_of_block : blocks)
                releases +=
                    uint64_t(std::count(steps_of_block.begin(), steps_of_block.end(), true)) * operation.call->runs;
    }
    if (releases * width > clock_words_most)
        return fail(error::schedule_limit, "the schedules have too many dependencies to check");
    if (connections_.size() * deepest > messages_most)
        return fail(error::schedule_limit, "{} connections of {} slots are too many to check", connections_.size(),
                    deepest);
    return ok();
}

// Finds the ranks that share each flag block, and the flag block's tiles of the operation. A rank has one flag block
// for all operations, so slots and words continue from the operation before.
Status CheckedSet::load_flag_blocks(LoadedOperation& operation) {
    operation.first_flag_tile.assign(size_t(ranks_), 0);
    std::vector<bool> counted(flag_blocks_.size());
    for (int rank = 0; rank < ranks_; ++rank) {
        const std::vector<int32_t>& ranks = operation.schedules[rank].shared_ranks;
        if (ranks.empty()) continue;
        for (const int32_t other : ranks)
            if (operation.schedules[other].shared_ranks != ranks)
                return fail(error::schedule_set, "rank {} and rank {} disagree on the schedule's flag block",
                            std::min(rank, other), std::max(rank, other));
        if (flag_block_of_[rank] < 0) {
            for (size_t place = 0; place < ranks.size(); ++place) {
                if (flag_block_of_[ranks[place]] >= 0)
                    return fail(error::schedule_set, "rank {} had another flag block before", ranks[place]);
                flag_block_of_[ranks[place]] = int(flag_blocks_.size());
                place_of_[ranks[place]] = int(place);
            }
            flag_blocks_.push_back({ranks});
            counted.push_back(false);
        }
        CheckedFlagBlock& flag_block = flag_blocks_[flag_block_of_[rank]];
        if (flag_block.ranks != ranks) return fail(error::schedule_set, "rank {} had another flag block before", rank);
        if (!counted[flag_block_of_[rank]]) {
            for (const int32_t member : ranks) operation.first_flag_tile[member] = flag_block.tiles;
            flag_block.tiles += operation.tiles;
            counted[flag_block_of_[rank]] = true;
        }
    }
    return ok();
}

static Status differ(const Schedule& first, const Schedule& other) {
    const std::pair<const char*, bool> facts[] = {
        {"algorithm", first.algorithm == other.algorithm},
        {"collective", first.collective == other.collective},
        {"root", first.root == other.root},
        {"channels", first.channels == other.channels},
        {"chunks", first.chunks == other.chunks},
        {"tiles", first.tiles == other.tiles},
        {"largest span", first.span == other.span},
        {"width", first.wide == other.wide},
        {"FIFO depth", first.fifo_depth == other.fifo_depth},
        {"range of bytes", first.least_bytes == other.least_bytes && first.most_bytes == other.most_bytes}};
    for (auto [what, same] : facts)
        if (!same)
            return fail(error::schedule_set, "rank {} and rank {} disagree on the schedule's {}", first.rank,
                        other.rank, what);
    return ok();
}

Status CheckedSet::load_schedules(LoadedOperation& operation) {
    const CheckedOperation& call = *operation.call;
    for (auto [what, size] :
         {std::pair{"readable", call.mode.readable.size()}, std::pair{"in place", call.in_place.size()}})
        if (size != 0 && size != size_t(ranks_))
            return fail(error::schedule_set, "{} values say whether ranks are {}, but there are {} ranks", size, what,
                        ranks_);
    operation.schedules.reserve(ranks_);
    for (int rank = 0; rank < ranks_; ++rank) {
        const Schedule& schedule = operation.schedules.emplace_back(call.schedule(rank));
        WEFT_TRY(validate(schedule));
        if (schedule.rank != rank || schedule.ranks != ranks_)
            return fail(error::schedule_set, "rank {} of {} has a schedule for rank {} of {}", rank, ranks_,
                        schedule.rank, schedule.ranks);
        WEFT_TRY(differ(operation.schedules[0], schedule));
        const int blocks = int(schedule.blocks.size());
        blocks_ = std::max(blocks_, blocks);
        for (const Block& block : schedule.blocks) {
            if (block.instructions.size() >= steps_most)
                return fail(error::schedule_limit, "rank {} has too many steps to check", rank);
            for (const Instruction& it : block.instructions)
                if (kind_of(it.opcode) == OpcodeKind::fused)
                    return fail(error::schedule_invalid, "rank {}: {} is fused; it is proved by its expansion", rank,
                                name_of(it.opcode));
        }
    }
    const int chunks = operation.schedules[0].chunks, parts = operation.schedules[0].parts();
    const size_t lengths[] = {call.tile_bytes, call.last_tile_bytes ? call.last_tile_bytes : call.tile_bytes};
    for (int last = 0; last < 2; ++last) {
        operation.empty_chunks[last].assign(chunks, false);
        for (int chunk = 0; lengths[last] && chunk < chunks; ++chunk)
            operation.empty_chunks[last][chunk] = chunk_range(lengths[last], chunks, chunk, 1, parts).bytes == 0;
    }
    return load_connections(operation);
}

// Both ends of each connection have a block for it. Connections stay from one operation to the next.
Status CheckedSet::load_connections(LoadedOperation& operation) {
    auto key = [&](int channel, int source, int target) {
        return (uint64_t(channel) * ranks_ + source) * ranks_ + target;
    };
    std::unordered_map<uint64_t, int> seen;  // bit 0: a block sends on it, bit 1: a block receives from it
    for (const Schedule& schedule : operation.schedules) {
        for (const Block& block : schedule.blocks) {
            if (block.target >= 0) seen[key(block.channel, schedule.rank, block.target)] |= 1;
            if (block.source >= 0) seen[key(block.channel, block.source, schedule.rank)] |= 2;
        }
    }
    for (const Schedule& schedule : operation.schedules) {
        for (const Block& block : schedule.blocks) {
            if (block.target >= 0 && seen[key(block.channel, schedule.rank, block.target)] == 1)
                return fail(error::schedule_set,
                            "rank {} sends to rank {} on channel {}, which has no block that receives it",
                            schedule.rank, block.target, block.channel);
            if (block.source < 0) continue;
            const uint64_t connection = key(block.channel, block.source, schedule.rank);
            if (seen[connection] == 2)
                return fail(error::schedule_set,
                            "rank {} receives from rank {} on channel {}, which has no block that sends it",
                            schedule.rank, block.source, block.channel);
            if (connection_of_.try_emplace(connection, int(connections_.size())).second)
                connections_.push_back({block.channel, block.source, schedule.rank});
        }
    }
    for (const Schedule& schedule : operation.schedules) {
        auto& ends = operation.ends.emplace_back();
        auto& depended = operation.depended.emplace_back();
        for (const Block& block : schedule.blocks) {
            ends.emplace_back(block.source < 0 ? -1 : connection_of_[key(block.channel, block.source, schedule.rank)],
                              block.target < 0 ? -1 : connection_of_[key(block.channel, schedule.rank, block.target)]);
            depended.emplace_back(block.instructions.size());
        }
        for (const Block& block : schedule.blocks)
            for (const Instruction& it : block.instructions)
                if (it.after != Dependency()) depended[it.after.block][it.after.step] = true;
    }
    return ok();
}

}  // namespace weft::internal
