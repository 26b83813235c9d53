// steps.hpp: the step machine on the device: each block of the grid walks one block of a schedule, tile after tile,
// over connections whose slots lie in the receiver's memory or, between hosts, in the host's. What src/executor/run.cpp
// does by looking again, it does by spinning. Rings, trees, halving and doubling: all instructions but the board's
// (program.hpp refuses those).
#pragma once
#include "src/executor/cuda/meeting.hpp"
#include "src/executor/cuda/reduce.hpp"

namespace weft::cuda {

template <weftDataType_t type, bool adds>
class StepMachine {
  public:
    WEFT_DEVICE StepMachine(const Team& team, const KernelArguments& arguments)
        : team_(team),
          a_(arguments),
          reducer_(arguments),
          meeting_(team, arguments),
          block_(arguments.step_blocks[team.block]),
          own_(*arguments.own) {
        received_ = block_.source.peer >= 0 ? *block_.source.count : 0;
        sent_ = block_.target.peer >= 0 ? *block_.target.count : 0;
    }

    WEFT_DEVICE void run() {
        if (!meeting_.begin() || !meeting_.announce()) return;
        const uint64_t tiles = a_.bytes == 0 ? 1 : (a_.bytes + a_.tile_bytes - 1) / a_.tile_bytes;
        uint64_t steps = 0;
        for (uint64_t tile = 0; tile < tiles; tile += uint64_t(a_.tiles)) {
            meeting_.at_tile(tile);
            for (int step = 0; step < block_.count; ++step) {
                const Instruction& it = a_.instructions[block_.first + step];
                if (it.after.block >= 0 && !reached(it.after, tile)) return;
                const size_t length = tile_length(a_.bytes, a_.tile_bytes, tile + uint64_t(it.tile));
                for (int iteration = 0; iteration < it.repeat; ++iteration)
                    if (!execute(it, iteration, tile + uint64_t(it.tile), length)) return;
                ++steps;
                if (!a_.dependent) continue;
                team_.barrier();
                if (team_.thread == 0) store_release(&own_.steps[team_.block], steps);  // pairs with reached()
            }
        }
        team_.barrier();
        if (team_.thread == 0) finish();
        meeting_.leave();
    }

  private:
    // Until the other block has the step behind it.
    WEFT_DEVICE_COLD bool reached(const Dependency& dependency, uint64_t tile) {
        const uint64_t distance = uint64_t(dependency.ago) * uint64_t(a_.tiles);
        if (tile < distance) return true;
        const uint64_t runs = (tile - distance) / uint64_t(a_.tiles),
                       steps = runs * uint64_t(a_.step_blocks[dependency.block].count) + uint64_t(dependency.step) + 1;
        bool failed = false;
        if (team_.thread == 0)
            failed = !meeting_.spin(
                Waiting::step, [&] { return a_.rank; },
                [&] { return load_acquire(&own_.steps[dependency.block]) >= steps; });
        return !team_.any(failed);
    }

    WEFT_DEVICE bool execute(const Instruction& it, int iteration, uint64_t tile, size_t length) {
        const ChunkSpan span = chunk_span(it, iteration, length, a_.chunks);
        if (span.bytes == 0 || it.opcode == Opcode::nop) return true;  // empty chunks are skipped on both ends
        if (it.opcode == Opcode::copy) {
            for (int piece = 0; piece < span.count; ++piece) copy(it, tile, span.pieces[piece]);
            return true;
        }
        const bool receives = weft::receives(it.opcode), sends = weft::sends(it.opcode);
        bool failed = false;
        if (team_.thread == 0) {
            if (receives) failed = !await_message();
            if (sends && !failed) failed = !await_credit();
        }
        if (team_.any(failed)) return false;
        const std::byte* in = receives ? slot(block_.source, received_) : nullptr;
        std::byte* out = sends ? slot(block_.target, sent_) : nullptr;
        for (int piece = 0; piece < span.count; ++piece) {
            const size_t bytes = span.pieces[piece].bytes;
            move(it, in, out, tile * a_.tile_bytes + span.pieces[piece].tile_offset, bytes);
            if (receives) in += bytes;
            if (sends) out += bytes;
        }
        // All have written and read: one thread says so for them.
        team_.barrier();
        if (sends) {
            ++sent_;
            const ConnectionEnd& to = block_.target;
            if (team_.thread == 0) {
                if (to.lengths) to.lengths[(sent_ - 1) % to.depth] = span.bytes;
                // pairs with await_message() or the proxy's take()
                store_release(&to.filled[(sent_ - 1) % to.depth], barrier_word(sent_, a_.fingerprint));
            }
        }
        if (receives) {
            ++received_;
            if (team_.thread == 0)
                store_relaxed(block_.source.consumed, received_);  // pairs with await_credit() or give()
        }
        return true;
    }

    // A piece of the message at `offset` of the buffers: in is where it comes from, out where it goes, or null.
    WEFT_DEVICE void move(const Instruction& it, const std::byte* in, std::byte* out, size_t offset, size_t bytes) {
        std::byte* const result = a_.receive + offset;
        const bool from_input = it.source == Buffer::input;
        const std::byte* own = (from_input ? a_.send : a_.receive) + offset;
        if (!in) {
            if (from_input)
                copy_input(team_, reducer_, out, own, bytes);
            else
                copy_range(team_, out, own, bytes);
            return;
        }
        std::byte* targets[2] = {out, result};
        const bool stores = weft::stores(it.opcode);
        if (!weft::reduces(it.opcode)) {
            if (out) copy_range(team_, out, in, bytes);
            copy_range(team_, result, in, bytes);
            return;
        }
        if (from_input && reducer_.scaled()) {  // seldom, and so in two passes
            std::byte* const scaled = out ? out : result;
            scale_range<type, adds>(team_, reducer_, scaled, own, bytes);
            team_.barrier();
            own = scaled;
        }
        const std::byte* sources[2] = {it.left ? own : in, it.left ? in : own};
        const Streams<2, 2> streams{sources, 2, out ? targets : targets + 1, out && stores ? 2 : 1, 0, it.finish};
        reduce_range<type, adds>(team_, reducer_, streams, 0, bytes);
    }
    WEFT_DEVICE void copy(const Instruction& it, uint64_t tile, const ChunkRange& range) {
        const size_t offset = tile * a_.tile_bytes + range.tile_offset;
        if (it.source == Buffer::input && (reducer_.scaled() || a_.send != a_.receive))
            copy_input(team_, reducer_, a_.receive + offset, a_.send + offset, range.bytes);
        team_.barrier();
    }

    // For one thread.
    WEFT_DEVICE_COLD bool await_message() {
        const ConnectionEnd& from = block_.source;
        const uint32_t wanted = received_ + 1;
        uint64_t word = 0;
        if (from.wanted) store_relaxed(from.wanted, wanted);  // pairs with Lane::needed()
        if (!meeting_.spin(
                Waiting::message, [&] { return from.peer; },
                [&] {
                    word = load_acquire(&from.filled[received_ % from.depth]);
                    return epoch_of(word) == wanted;
                }))
            return false;
        if (uint32_t(word) == a_.fingerprint) return true;
        return meeting_.fail(Failure::mismatch, Waiting::nothing, from.peer, uint32_t(word)), false;
    }
    WEFT_DEVICE_COLD bool await_credit() {
        const ConnectionEnd& to = block_.target;
        return meeting_.spin(
            Waiting::credit, [&] { return to.peer; }, [&] { return sent_ - load_acquire(to.consumed) < to.depth; });
    }
    static WEFT_DEVICE std::byte* slot(const ConnectionEnd& end, uint32_t number) {
        return end.slots + size_t(number % end.depth) * end.slot_bytes;
    }

    // One thread, when the block has ended. The last block of all clears the steps for the next operation.
    WEFT_DEVICE void finish() {
        if (block_.source.peer >= 0) *block_.source.count = received_;
        if (block_.target.peer >= 0) *block_.target.count = sent_;
        if (!a_.dependent || count_up(&own_.finished) + 1 != uint32_t(a_.step_block_count)) return;
        for (int block = 0; block < a_.step_block_count; ++block) store_relaxed(&own_.steps[block], uint64_t(0));
        store_relaxed(&own_.finished, 0u);
    }

    const Team& team_;
    const KernelArguments& a_;
    const Reducer<type, adds> reducer_;
    Meeting meeting_;
    const StepBlock& block_;
    RankWords& own_;
    uint32_t received_, sent_;  // messages
};

// A block of the grid for each of the schedule. Grids are of the same size on all ranks, schedules are not: a block
// that has nothing to do says that it was here, for else its epoch would fall behind that of its peers.
template <weftDataType_t type, bool adds>
WEFT_DEVICE void steps(const Team& team, const KernelArguments& arguments) {
    if (team.block < arguments.step_block_count) {
        StepMachine<type, adds>(team, arguments).run();
    } else {
        Meeting meeting(team, arguments);
        if (meeting.begin() && meeting.announce()) meeting.leave();
    }
    // Behind the messages: who sees it has seen them. Pairs with Traffic::working().
    if (arguments.ended && team.thread == 0) store_release(&arguments.ended[team.block], arguments.launch);
}

}  // namespace weft::cuda
