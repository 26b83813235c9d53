// operands.hpp: the memory that an instruction reads and writes on this rank.
#pragma once
#include "src/executor/call_buffers.hpp"
#include "src/executor/flag_sync.hpp"

namespace weft::internal {

// One execution of an instruction.
struct StepAt {
    size_t block;
    int32_t step, iteration;
    uint64_t tile;
    const Instruction* instruction;
};

// Owned by a StepMachine. Thread-bound to the rank.
class Operands {
  public:
    static constexpr int targets_most = 3;  // output, slot and scratch

    Operands(const Plan& plan, CallBuffers& buffers, const FlagSync& flags)
        : plan_(&plan),
          buffers_(&buffers),
          flags_(&flags),
          parts_(plan.schedule->parts()),
          tiling_{plan.bytes(), plan.tile_bytes},
          cell_bytes_(cell_bytes(plan.tile_bytes, plan.schedule->chunks / parts_)) {}
    void begin() {
        if (plan_->scratch) scratch_ = plan_->scratch->data();
    }

    CallBuffers& buffers() const { return *buffers_; }
    ChunkSpan span_of(const Instruction& instruction, int iteration, uint64_t tile) const {
        return chunk_span(instruction, iteration, plan_->tile_length(tile), plan_->schedule->chunks, parts_);
    }
    // The contiguous piece at the begin of the range.
    Piece piece_at(uint64_t tile, const ChunkRange& range) const {
        return range.bytes == 0 ? Piece{}
                                : tiling_.piece(tile, plan_->tile_length(tile), range.tile_offset, range.bytes);
    }
    Piece piece_of(uint64_t tile, int chunk) const {
        return piece_at(tile, chunk_range(plan_->tile_length(tile), plan_->schedule->chunks, chunk, 1, parts_));
    }
    // Calls use(piece) for each part of the span that is contiguous in the tile and in the buffers.
    template <class Use>
    void each_piece(const ChunkSpan& span, uint64_t tile, Use&& use) const {
        const size_t length = plan_->tile_length(tile);
        for (int i = 0; i < span.count; ++i) {
            const size_t end = span.pieces[i].tile_offset + span.pieces[i].bytes;
            for (size_t at = span.pieces[i].tile_offset; at < end;) {
                const Piece piece = tiling_.piece(tile, length, at, end - at);
                use(piece);
                at += piece.bytes;
            }
        }
    }

    // The source of a piece. A scaled input lies in scratch.
    const std::byte* source(const Instruction& instruction, uint64_t tile, const Piece& piece) const {
        if (instruction.source == Buffer::input) return buffers_->own_input(piece.offset, piece.bytes);
        if (instruction.source == Buffer::slot) return slot_at(flags_->place(), tile, piece);
        return instruction.source == Buffer::scratch ? scratch_at(instruction.source_cell, piece)
                                                     : buffers_->receive() + piece.offset;
    }
    // The destinations of a piece, at most targets_most, the output first. Returns their number.
    int targets(const Instruction& instruction, uint64_t tile, const Piece& piece, void** destinations) const {
        int count = 0;
        if (instruction.targets & Buffer::output) destinations[count++] = buffers_->receive() + piece.offset;
        if (instruction.targets & Buffer::slot) destinations[count++] = slot_at(flags_->place(), tile, piece);
        if (instruction.targets & Buffer::scratch) destinations[count++] = scratch_at(instruction.target_cell, piece);
        return count;
    }
    // The only place that received data goes to, in one piece and unchanged; null: there is none, or several.
    std::byte* only_target(const StepAt& at, const ChunkSpan& span) const {
        const Opcode opcode = at.instruction->opcode;
        if ((opcode != Opcode::recv && opcode != Opcode::recv_copy_send) || span.count != 1) return nullptr;
        const Piece piece = piece_at(at.tile, span.pieces[0]);
        void* destinations[targets_most];
        const bool alone = piece.bytes == span.bytes && targets(*at.instruction, at.tile, piece, destinations) == 1;
        return alone ? static_cast<std::byte*>(destinations[0]) : nullptr;
    }
    std::byte* scratch_at(int cell, const Piece& piece) const {
        return scratch_ + (cell < 0 ? piece.tile_offset : size_t(cell) * cell_bytes_);
    }
    // In the slot of the rank at a place.
    std::byte* slot_at(int place, uint64_t tile, const Piece& piece) const {
        return flags_->slot(place, tile) + piece.tile_offset;
    }

  private:
    const Plan* plan_;
    CallBuffers* buffers_;
    const FlagSync* flags_;
    int parts_;
    Tiling tiling_;
    size_t cell_bytes_;
    std::byte* scratch_ = nullptr;  // Buffer::scratch
};

}  // namespace weft::internal
