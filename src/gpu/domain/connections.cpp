#include "src/gpu/domain/connections.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "src/gpu/domain/program.hpp"

namespace weft::internal::cuda {

namespace {

constexpr uint32_t depth_max = Connections::depth_max;

// One end of a connection in its rank's area. Each line has one writer. A receiving end uses the first and the last
// line, a sending end the other two.
struct EndFlags {
    alignas(128) uint64_t filled[depth_max];  // written by the sender
    alignas(128) uint32_t consumed;           // written by the receiver
    alignas(128) uint32_t count;              // written by the rank's own kernels
};

// A remote end in host memory. The sender (kernel or proxy) writes the first line, the receiver the second.
struct RemoteEndFlags {
    alignas(128) uint64_t filled[depth_max];
    uint64_t lengths[depth_max];
    alignas(128) uint32_t consumed;
    uint32_t wanted;
};

size_t round_up(size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

uint32_t Connections::depth_of(const Schedule& schedule) {
    const uint32_t depth = slots_of(schedule);
    assert(depth <= depth_max);
    return depth;
}

size_t Connections::area_bytes() const { return round_up(most_.ends * sizeof(EndFlags)) + most_.slots * slot_bytes; }
size_t Connections::remote_words_bytes() const { return round_up(most_.remote * sizeof(RemoteEndFlags)); }

size_t Connections::step_blocks_offset(const Schedule& schedule) {
    size_t instructions = 0;
    for (const Block& block : schedule.blocks) instructions += block.instructions.size();
    return (instructions * sizeof(Instruction) + 15) / 16 * 16;
}

size_t Connections::most_tile_bytes(const Schedule& schedule) {
    return has_scratch(schedule) ? std::min(slot_bytes, largest_tile_bytes(schedule, slot_bytes))
                                 : largest_tile_bytes(schedule, slot_bytes);
}

Connections::End Connections::next_end(int rank, bool incoming, bool remote, uint32_t depth) {
    Extent& has = extents_[size_t(rank)];
    size_t& slots = incoming ? has.received_slots : has.sent_slots;
    const End end{has.ends, has.remote, slots};
    ++has.ends;
    has.remote += remote;
    slots += remote ? depth : 0;
    return end;
}

void Connections::connect(const ConnectionKey& key) {
    const auto [place, fresh] = connections_.try_emplace(key);
    if (!fresh) return;
    const bool remote = !together(key.sender, key.receiver);
    Extent& receiver = extents_[size_t(key.receiver)];
    place->second = {next_end(key.sender, false, remote, key.depth), next_end(key.receiver, true, remote, key.depth),
                     receiver.slots};
    if (!remote) receiver.slots += key.depth;
    for (const int rank : {key.sender, key.receiver}) {
        const Extent& has = extents_[size_t(rank)];
        most_ = {std::max(most_.ends, has.ends), std::max(most_.slots, has.slots), std::max(most_.remote, has.remote),
                 std::max(most_.sent_slots, has.sent_slots), std::max(most_.received_slots, has.received_slots)};
    }
}

void Connections::add(std::vector<Schedule> schedules) {
    extents_.resize(schedules.size());
    size_t program = 0;
    for (Schedule& schedule : schedules) {
        assert(refusal(schedule).empty());
        // Each connection is found by its sending end.
        for (const Block& block : schedule.blocks)
            if (block.target >= 0) connect({block.channel, schedule.rank, block.target, depth_of(schedule)});
        // The programs of ranks differ, so all ranks reserve room for the largest.
        program = std::max(program, step_blocks_offset(schedule) + schedule.blocks.size() * sizeof(StepBlock));
        scratch_bytes_ =
            std::max(scratch_bytes_, round_up(weft::internal::scratch_bytes(schedule, most_tile_bytes(schedule))));
        if (!wanted(schedule.rank)) schedule = {};
    }
    groups_.push_back({std::move(schedules), program_bytes_});
    program_bytes_ = round_up(program_bytes_ + program);
}

ConnectionEnd Connections::remote_end(const ConnectionKey& key, const KernelConnection& connection, bool incoming,
                                      const RemoteEndMemory& remote) const {
    const End& own = incoming ? connection.receiver : connection.sender;
    ConnectionEnd end{};
    end.slot_bytes = slot_bytes;
    end.depth = key.depth;
    end.peer = incoming ? key.sender : key.receiver;
    if (std::byte* const slots = incoming ? remote.received : remote.sent)
        end.slots = slots + own.remote_slots * slot_bytes;
    if (!remote.words) return end;
    auto* const words = reinterpret_cast<RemoteEndFlags*>(remote.words) + own.remote;
    end.filled = words->filled;
    end.consumed = &words->consumed;
    if (incoming)
        end.wanted = &words->wanted;
    else
        end.lengths = words->lengths;
    return end;
}

std::vector<RemoteEnd> Connections::remote_ends(int rank, const RemoteEndMemory& remote) const {
    std::vector<RemoteEnd> ends;
    for (const auto& [key, connection] : connections_) {
        if (together(key.sender, key.receiver) || (key.sender != rank && key.receiver != rank)) continue;
        const bool incoming = key.receiver == rank;
        ends.push_back({key.channel, incoming, remote_end(key, connection, incoming, remote)});
    }
    return ends;
}

ConnectionEnd Connections::end_of(const ConnectionKey& key, const KernelConnection& connection, bool incoming,
                                  std::span<std::byte* const> areas, const RemoteEndMemory& remote) const {
    const auto words = [&](int rank, const End& end) {
        return reinterpret_cast<EndFlags*>(areas[size_t(rank)]) + end.place;
    };
    uint32_t* const count =
        incoming ? &words(key.receiver, connection.receiver)->count : &words(key.sender, connection.sender)->count;
    ConnectionEnd end{};
    // A remote end has its own location. Only the count is with the kernel.
    if (!together(key.sender, key.receiver)) {
        end = remote_end(key, connection, incoming, remote);
        end.count = count;
        return end;
    }
    end.slots = areas[size_t(key.receiver)] + round_up(most_.ends * sizeof(EndFlags)) + connection.slots * slot_bytes;
    end.filled = words(key.receiver, connection.receiver)->filled;
    end.consumed = &words(key.sender, connection.sender)->consumed;
    end.count = count;
    end.slot_bytes = slot_bytes;
    end.depth = key.depth;
    end.peer = incoming ? key.sender : key.receiver;
    return end;
}

std::vector<std::byte> Connections::programs(int rank, std::span<std::byte* const> areas,
                                             const RemoteEndMemory& remote) const {
    assert(wanted(rank));
    std::vector<std::byte> memory(program_bytes_);
    for (const ProgramGroup& group : groups_) {
        const Schedule& schedule = group.schedules[size_t(rank)];
        Program program = program_of(schedule);
        const auto bind = [&](ConnectionEnd& end, const ConnectionKey& key, bool incoming) {
            if (end.peer >= 0) end = end_of(key, connections_.at(key), incoming, areas, remote);
        };
        for (size_t i = 0; i < program.blocks.size(); ++i) {
            const Block& block = schedule.blocks[i];
            const uint32_t depth = depth_of(schedule);
            bind(program.blocks[i].source, {block.channel, block.source, rank, depth}, true);
            bind(program.blocks[i].target, {block.channel, rank, block.target, depth}, false);
        }
        std::byte* const at = memory.data() + group.program;
        memcpy(at, program.instructions.data(), program.instructions.size() * sizeof(Instruction));
        memcpy(at + step_blocks_offset(schedule), program.blocks.data(), program.blocks.size() * sizeof(StepBlock));
    }
    return memory;
}

void Connections::bind(KernelArguments& arguments, size_t index, const std::byte* programs) const {
    const ProgramGroup& group = groups_[index];
    const Schedule& schedule = group.schedules[size_t(arguments.rank)];
    const std::byte* const at = programs + group.program;
    arguments.instructions = reinterpret_cast<const Instruction*>(at);
    arguments.step_blocks = reinterpret_cast<const StepBlock*>(at + step_blocks_offset(schedule));
    arguments.step_block_count = int32_t(schedule.blocks.size());
    arguments.chunks = schedule.chunks;
    arguments.parts = schedule.parts();
    arguments.tiles = schedule.tiles;
    arguments.dependent = program_of(schedule).dependent;
}

}  // namespace weft::internal::cuda
