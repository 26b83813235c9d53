#include "src/executor/cuda/connections.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "src/executor/cuda/program.hpp"

namespace weft::cuda {

namespace {

constexpr uint32_t depth_max = 16;

// Of one block of a rank's schedule. Each line has one writer.
struct BlockWords {
    alignas(128) uint64_t filled[depth_max];  // the rank that the block receives from
    alignas(128) uint32_t consumed;           // the rank that it sends to
    alignas(128) uint32_t received, sent;     // its own kernels
};

// Of an end abroad, in host memory. The first line's writer is who sends, the kernel or the proxy, the second's who
// receives.
struct AbroadWords {
    alignas(128) uint64_t filled[depth_max];
    uint64_t lengths[depth_max];
    alignas(128) uint32_t consumed;
    uint32_t wanted;
};

size_t round_up(size_t bytes) { return (bytes + 255) / 256 * 256; }

bool receives_from(const Block& block, int channel, int rank) {
    return block.channel == channel && block.source == rank;
}
bool sends_to(const Block& block, int channel, int rank) { return block.channel == channel && block.target == rank; }

// The block of a schedule that is one end of a connection.
template <class IsEnd>
size_t index_of(const Schedule& schedule, IsEnd&& is_end) {
    const auto found = std::find_if(schedule.blocks.begin(), schedule.blocks.end(), is_end);
    assert(found != schedule.blocks.end());
    return size_t(found - schedule.blocks.begin());
}

}  // namespace

bool Connections::is_abroad(const Schedule& schedule, size_t block, bool incoming) const {
    const int peer = incoming ? schedule.blocks[block].source : schedule.blocks[block].target;
    return peer >= 0 && !together(schedule.rank, peer);
}

size_t Connections::abroad_before(const Schedule& schedule, size_t block, bool incoming) const {
    size_t count = !incoming && is_abroad(schedule, block, true);
    for (size_t before = 0; before < block; ++before)
        count += size_t(is_abroad(schedule, before, true)) + size_t(is_abroad(schedule, before, false));
    return count;
}

// How many of the first `blocks` blocks receive from ranks of the host: slots lie in that order.
size_t Connections::receiving(const Schedule& schedule, size_t blocks) const {
    size_t count = 0;
    for (size_t block = 0; block < blocks; ++block)
        count += schedule.blocks[block].source >= 0 && !is_abroad(schedule, block, true);
    return count;
}

size_t Connections::step_blocks_offset(const Schedule& schedule) {
    size_t instructions = 0;
    for (const Block& block : schedule.blocks) instructions += block.instructions.size();
    return (instructions * sizeof(Instruction) + 15) / 16 * 16;
}

void Connections::add(std::vector<Schedule> schedules) {
    Group group{};
    group.depth = slots_of(schedules[0]);
    assert(group.depth <= depth_max);
    // Ranks differ in what they do: all have room for the most.
    size_t blocks = 0, incoming = 0, program = 0, abroad = 0;
    for (const Schedule& schedule : schedules) {
        assert(refusal(schedule).empty());
        blocks = std::max(blocks, schedule.blocks.size());
        incoming = std::max(incoming, receiving(schedule, schedule.blocks.size()));
        abroad = std::max(abroad, abroad_before(schedule, schedule.blocks.size(), true));
        program = std::max(program, step_blocks_offset(schedule) + schedule.blocks.size() * sizeof(StepBlock));
    }
    group.words = area_bytes_;
    group.slots = round_up(group.words + blocks * sizeof(BlockWords));
    group.program = program_bytes_;
    area_bytes_ = round_up(group.slots + incoming * group.depth * slot_bytes);
    program_bytes_ = round_up(group.program + program);
    group.abroad_words = abroad_words_bytes_;
    group.abroad_slots = abroad_slots_bytes_;
    abroad_words_bytes_ += abroad * sizeof(AbroadWords);
    abroad_slots_bytes_ += abroad * group.depth * slot_bytes;
    group.schedules = std::move(schedules);
    groups_.push_back(std::move(group));
}

ConnectionEnd Connections::abroad_end(const Group& group, const Schedule& schedule, size_t block, bool incoming,
                                      std::byte* abroad) const {
    const size_t place = abroad_before(schedule, block, incoming);
    auto* const words = reinterpret_cast<AbroadWords*>(abroad + group.abroad_words) + place;
    ConnectionEnd end{};
    end.slots = abroad + abroad_words_bytes_ + group.abroad_slots + place * group.depth * slot_bytes;
    end.filled = words->filled;
    end.consumed = &words->consumed;
    if (incoming)
        end.wanted = &words->wanted;
    else
        end.lengths = words->lengths;
    end.slot_bytes = slot_bytes;
    end.depth = group.depth;
    end.peer = incoming ? schedule.blocks[block].source : schedule.blocks[block].target;
    return end;
}

std::vector<AbroadEnd> Connections::abroad_ends(int rank, std::byte* abroad) const {
    std::vector<AbroadEnd> ends;
    for (size_t index = 0; index < groups_.size(); ++index) {
        const Group& group = groups_[index];
        const Schedule& schedule = group.schedules[size_t(rank)];
        for (size_t block = 0; block < schedule.blocks.size(); ++block)
            for (const bool incoming : {true, false})
                if (is_abroad(schedule, block, incoming))
                    ends.push_back({index, block, incoming, abroad_end(group, schedule, block, incoming, abroad)});
    }
    return ends;
}

StepBlock Connections::with_connections(const Group& group, const Schedule& schedule, size_t index,
                                        std::span<std::byte* const> areas, std::byte* abroad) const {
    const auto words = [&](int rank, size_t block) {
        return reinterpret_cast<BlockWords*>(areas[size_t(rank)] + group.words) + block;
    };
    // From the block `sending` of rank `from` to the block `receiving_block` of rank `to`.
    const auto connection = [&](int from, size_t sending, int to, size_t receiving_block) {
        ConnectionEnd end{};
        const size_t slots = receiving(group.schedules[size_t(to)], receiving_block) * group.depth;
        end.slots = areas[size_t(to)] + group.slots + slots * slot_bytes;
        end.filled = words(to, receiving_block)->filled;
        end.consumed = &words(from, sending)->consumed;
        end.slot_bytes = slot_bytes;
        end.depth = group.depth;
        return end;
    };
    const Block& block = schedule.blocks[index];
    const int rank = schedule.rank;
    StepBlock bound{};
    bound.source.peer = block.source;
    bound.target.peer = block.target;
    // An end abroad is a place of its own; only the count stays with the kernel.
    if (is_abroad(schedule, index, true)) {
        bound.source = abroad_end(group, schedule, index, true, abroad);
        bound.source.count = &words(rank, index)->received;
    } else if (block.source >= 0) {
        const size_t sending = index_of(group.schedules[size_t(block.source)],
                                        [&](const Block& other) { return sends_to(other, block.channel, rank); });
        bound.source = connection(block.source, sending, rank, index);
        bound.source.count = &words(rank, index)->received;
        bound.source.peer = block.source;
    }
    if (is_abroad(schedule, index, false)) {
        bound.target = abroad_end(group, schedule, index, false, abroad);
        bound.target.count = &words(rank, index)->sent;
    } else if (block.target >= 0) {
        const size_t theirs = index_of(group.schedules[size_t(block.target)],
                                       [&](const Block& other) { return receives_from(other, block.channel, rank); });
        bound.target = connection(rank, index, block.target, theirs);
        bound.target.count = &words(rank, index)->sent;
        bound.target.peer = block.target;
    }
    return bound;
}

std::vector<std::byte> Connections::programs(int rank, std::span<std::byte* const> areas, std::byte* abroad) const {
    std::vector<std::byte> memory(program_bytes_);
    for (const Group& group : groups_) {
        const Schedule& schedule = group.schedules[size_t(rank)];
        Program program = program_of(schedule);
        for (size_t i = 0; i < program.blocks.size(); ++i) {
            const StepBlock bound = with_connections(group, schedule, i, areas, abroad);
            program.blocks[i].source = bound.source;
            program.blocks[i].target = bound.target;
        }
        std::byte* const at = memory.data() + group.program;
        memcpy(at, program.instructions.data(), program.instructions.size() * sizeof(Instruction));
        memcpy(at + step_blocks_offset(schedule), program.blocks.data(), program.blocks.size() * sizeof(StepBlock));
    }
    return memory;
}

void Connections::bind(KernelArguments& arguments, size_t index, const std::byte* programs) const {
    const Group& group = groups_[index];
    const Schedule& schedule = group.schedules[size_t(arguments.rank)];
    const std::byte* const at = programs + group.program;
    arguments.instructions = reinterpret_cast<const Instruction*>(at);
    arguments.step_blocks = reinterpret_cast<const StepBlock*>(at + step_blocks_offset(schedule));
    arguments.step_block_count = int32_t(schedule.blocks.size());
    arguments.chunks = schedule.chunks;
    arguments.tiles = schedule.tiles;
    arguments.dependent = program_of(schedule).dependent;
}

}  // namespace weft::cuda
