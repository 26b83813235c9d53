#include "src/simulator/symmetry.hpp"

#include <algorithm>

namespace weft::internal {

namespace {

int distance(int from, int to, int ranks) { return to < 0 ? -1 : (to - from + ranks) % ranks; }

// Compares the fields that decide the duration of a step and what it waits for.
bool same_step(const Instruction& one, const Instruction& other) {
    return one.opcode == other.opcode && one.source == other.source && one.targets == other.targets &&
           one.phase == other.phase && one.repeat == other.repeat && one.count == other.count &&
           one.after == other.after && one.tile == other.tile;
}

bool reads_alike(const Instruction& one, int rank, const Instruction& other, int other_rank, int ranks) {
    if (one.opcode != Opcode::copy || one.source != Buffer::slot) return true;
    for (int iteration = 0; iteration < one.repeat; ++iteration)
        if (distance(rank, one.rank.at(iteration), ranks) != distance(other_rank, other.rank.at(iteration), ranks))
            return false;
    return true;
}

}  // namespace

bool chunks_alike(const Schedule& schedule, size_t length) {
    const size_t shares = size_t(schedule.chunks / schedule.parts());
    return shares == 1 || length % (64 * shares) == 0;
}

bool turns_into(const Schedule& one, const Schedule& other, int period) {
    const int ranks = one.ranks;
    if (one.blocks.size() != other.blocks.size() || one.shared_ranks.size() != other.shared_ranks.size() ||
        one.chunks != other.chunks || one.fifo_depth != other.fifo_depth || one.tiles != other.tiles ||
        (other.rank - one.rank) % period != 0)
        return false;
    std::vector<int32_t> shared_ranks = one.shared_ranks;
    for (int32_t& member : shared_ranks) member = int32_t((member + other.rank - one.rank) % ranks);
    std::sort(shared_ranks.begin(), shared_ranks.end());
    if (shared_ranks != other.shared_ranks) return false;
    for (size_t b = 0; b < one.blocks.size(); ++b) {
        const Block &block = one.blocks[b], &turned = other.blocks[b];
        if (block.channel != turned.channel || block.instructions.size() != turned.instructions.size() ||
            distance(one.rank, block.source, ranks) != distance(other.rank, turned.source, ranks) ||
            distance(one.rank, block.target, ranks) != distance(other.rank, turned.target, ranks))
            return false;
        for (size_t s = 0; s < block.instructions.size(); ++s)
            if (!same_step(block.instructions[s], turned.instructions[s]) ||
                !reads_alike(block.instructions[s], one.rank, turned.instructions[s], other.rank, ranks))
                return false;
    }
    return true;
}

bool shared_ranks_turn(const Schedule& schedule, int period) {
    if (schedule.shared_ranks.empty() || shared_by_all(schedule)) return true;
    return schedule.shared_ranks.front() / period == schedule.shared_ranks.back() / period;
}

}  // namespace weft::internal
