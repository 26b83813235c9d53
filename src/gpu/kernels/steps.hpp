// steps.hpp: the step machine on the device. Each block of the grid runs one block of a schedule, tile after tile. Its
// connections' slots lie in the receiver's memory or, between hosts, in host memory. It spins where executor's StepMachine
// polls again. It runs all instructions except the flag block's (program.hpp refuses those).
#pragma once
#include "src/gpu/kernels/kernel_barrier.hpp"
#include "src/gpu/kernels/reduce.hpp"

namespace weft::internal::cuda {

template <weftDataType_t type, bool adds>
class StepMachine {
  public:
    WEFT_DEVICE StepMachine(const Team& team, const KernelArguments& arguments)
        : team_(team),
          a_(arguments),
          reducer_(arguments),
          barrier_(team, arguments),
          block_(arguments.step_blocks[team.block]) {
        received_ = block_.source.peer >= 0 ? *block_.source.count : 0;
        sent_ = block_.target.peer >= 0 ? *block_.target.count : 0;
    }

    WEFT_DEVICE void run() {
        if (!barrier_.begin()) return;
        barrier_.announce();
        cell_bytes_ = cell_bytes(a_.tile_bytes, a_.chunks / a_.parts);
        const uint64_t tiles = a_.bytes == 0 ? 1 : (a_.bytes + a_.tile_bytes - 1) / a_.tile_bytes;
        uint64_t steps = 0;
        for (uint64_t tile = 0; tile < tiles; tile += uint64_t(a_.tiles)) {
            barrier_.at_tile(tile);
            for (int step = 0; step < block_.count; ++step) {
                const Instruction& it = a_.instructions[block_.first + step];
                if (it.after.block >= 0 && !reached(it.after, tile)) return;
                const size_t length = tile_length(a_.bytes, a_.tile_bytes, tile + uint64_t(it.tile));
                for (int iteration = 0; iteration < it.repeat; ++iteration)
                    if (!execute(it, iteration, tile + uint64_t(it.tile), length)) return;
                ++steps;
                if (!a_.dependent) continue;
                team_.barrier();
                if (team_.thread == 0) store_release(&a_.own->steps[team_.block], steps);  // pairs with reached()
            }
        }
        // Fused bodies require that no rank is an operation ahead; a rank that only sends would be.
        if (!barrier_.await(KernelWait::entry)) return;
        if (team_.thread == 0) finish();
        barrier_.keep_epoch();
    }

  private:
    // Waits until the other block has completed the step.
    WEFT_DEVICE bool reached(const Dependency& dependency, uint64_t tile) {
        if (!has_earlier_run(dependency, a_.tiles, tile)) return true;
        const uint64_t runs = earlier_run(dependency, a_.tiles, tile) / uint64_t(a_.tiles),
                       steps = runs * uint64_t(a_.step_blocks[dependency.block].count) + uint64_t(dependency.step) + 1;
        bool failed = false;
        if (team_.thread == 0)
            failed = !barrier_.spin(
                KernelWait::step, [&] { return a_.rank; },
                [&] { return load_acquire(&a_.own->steps[dependency.block]) >= steps; });
        return !team_.any(failed);
    }

    WEFT_DEVICE bool execute(const Instruction& it, int iteration, uint64_t tile, size_t length) {
        const ChunkSpan span = chunk_span(it, iteration, length, a_.chunks, a_.parts);
        if (span.bytes == 0 || !moves(it.opcode)) return true;  // empty chunks are skipped on both ends
        const bool receives = weft::internal::receives(it.opcode), sends = weft::internal::sends(it.opcode);
        bool failed = false;
        if (team_.thread == 0) {
            if (receives) failed = !await_message();
            if (sends && !failed) failed = !await_credit();
        }
        if ((receives || sends) && team_.any(failed)) return false;
        const std::byte* in = receives ? slot(block_.source, received_) : nullptr;
        std::byte* out = sends ? slot(block_.target, sent_) : nullptr;
        const Tiling tiling{a_.bytes, a_.tile_bytes};
        // A copy to another chunk: each chunk lies in one part, so both sides are one piece.
        const size_t into = it.moves ? chunk_bound(length, a_.chunks, a_.parts, it.into.at(iteration)) : 0;
        WEFT_NO_UNROLL
        for (int range = 0; range < span.count; ++range) {
            const ChunkRange whole = range == 0 ? span.pieces[0] : span.pieces[1];  // a variable index needs memory
            const size_t end = whole.tile_offset + whole.bytes;
            for (size_t at = whole.tile_offset; at < end;) {
                const Piece piece = tiling.piece(tile, length, at, end - at);
                move(it, in, out, piece, it.moves ? tiling.piece(tile, length, into, piece.bytes) : piece);
                at += piece.bytes;
                if (receives) in += piece.bytes;
                if (sends) out += piece.bytes;
            }
        }
        // All threads have written and read; then one thread signals for all.
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
                store_credit(block_.source.consumed, received_);  // pairs with await_credit() or give()
        }
        return true;
    }

    // A piece of the message. in: its source; out: its destination, or null. from, to: its places in this rank's
    // memory.
    WEFT_DEVICE void move(const Instruction& it, const std::byte* in, std::byte* out, const Piece& from,
                          const Piece& to) {
        const bool from_input = it.source == Buffer::input, adds_own = it.opcode == Opcode::add;
        // A message that is only passed on has no source here, and the buffer may be null.
        const bool reads_own = !in || combines(it.opcode);
        const std::byte* own = !reads_own                     ? nullptr
                               : from_input                   ? a_.send + from.offset
                               : it.source == Buffer::scratch ? scratch_at(it.source_cell, from)
                                                              : a_.receive + from.offset;
        const bool writes = writes_targets(it.opcode);
        std::byte* const output = writes && (it.targets & Buffer::output) ? a_.receive + to.offset : nullptr;
        std::byte* const scratch = writes && (it.targets & Buffer::scratch) ? scratch_at(it.target_cell, to) : nullptr;
        std::byte* targets[3] = {out, output, scratch};
        const bool scales = from_input && reducer_.scaled();
        if (!combines(it.opcode)) {
            if (scales && !in) return scale_range<type, adds>(team_, reducer_, own, from.bytes, out, output, scratch);
            WEFT_UNROLL
            for (int i = 0; i < 3; ++i)
                if (targets[i]) copy_range(team_, targets[i], in ? in : own, from.bytes);
            return;
        }
        std::byte* const first = out ? out : output ? output : scratch;
        const std::byte* const other = adds_own ? first : in;
        if (adds_own) targets[0] = first, targets[1] = targets[2] = nullptr;
        const std::byte* sources[2] = {it.left ? own : other, it.left ? other : own};
        const Streams<2, 3> streams{sources, 2, targets, 0, 0, it.finish, !scales ? -1 : it.left ? 0 : 1};
        reduce_range<type, adds>(team_, reducer_, streams, 0, from.bytes);
    }
    WEFT_DEVICE std::byte* scratch_at(int cell, const Piece& piece) const {
        return a_.scratch + (cell < 0 ? piece.tile_offset : size_t(cell) * cell_bytes_);
    }

    // For one thread.
    WEFT_DEVICE bool await_message() {
        const ConnectionEnd& from = block_.source;
        const uint32_t wanted = received_ + 1;
        uint64_t word = 0;
        if (from.wanted) store_relaxed(from.wanted, wanted);  // pairs with ProxyChannel::needed()
        if (!barrier_.spin(
                KernelWait::message, [&] { return from.peer; },
                [&] {
                    word = load_acquire(&from.filled[received_ % from.depth]);
                    return epoch_of(word) == wanted;
                }))
            return false;
        if (uint32_t(word) == a_.fingerprint) return true;
        return barrier_.fail(KernelFailure::mismatch, KernelWait::nothing, from.peer, uint32_t(word)), false;
    }
    WEFT_DEVICE bool await_credit() {
        const ConnectionEnd& to = block_.target;
        return barrier_.spin(
            KernelWait::credit, [&] { return to.peer; }, [&] { return sent_ - load_acquire(to.consumed) < to.depth; });
    }
    static WEFT_DEVICE std::byte* slot(const ConnectionEnd& end, uint32_t number) {
        return end.slots + size_t(number % end.depth) * end.slot_bytes;
    }

    // One thread calls it when the block has ended. The last block clears the steps for the next operation.
    WEFT_DEVICE void finish() {
        if (block_.source.peer >= 0) *block_.source.count = received_;
        if (block_.target.peer >= 0) *block_.target.count = sent_;
        if (!a_.dependent || count_up(&a_.own->finished) + 1 != uint32_t(a_.step_block_count)) return;
        for (int block = 0; block < a_.step_block_count; ++block) store_relaxed(&a_.own->steps[block], uint64_t(0));
        store_relaxed(&a_.own->finished, 0u);
    }

    const Team team_;
    const KernelArguments& a_;
    const Reducer<type, adds> reducer_;
    KernelBarrier barrier_;
    const StepBlock& block_;
    uint32_t received_, sent_;  // messages
    size_t cell_bytes_ = 0;     // of scratch
};

// One grid block per schedule block. Grids have equal size on all ranks, but schedules do not. A block without work
// announces its epoch too, so that it does not fall behind its peers.
template <weftDataType_t type, bool adds>
WEFT_DEVICE void steps(const Team& team, const KernelArguments& arguments) {
    if (team.block < arguments.step_block_count) {
        StepMachine<type, adds>(team, arguments).run();
    } else {
        KernelBarrier barrier(team, arguments);
        if (barrier.begin()) {
            barrier.announce();
            if (barrier.await(KernelWait::entry)) barrier.keep_epoch();
        }
    }
    // After the messages: a reader that sees this has seen them. Pairs with has_ended().
    if (arguments.ended && team.thread == 0) store_release(&arguments.ended[team.block], arguments.launch);
}

}  // namespace weft::internal::cuda
