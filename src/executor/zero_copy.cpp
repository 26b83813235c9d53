// zero_copy.cpp: messages whose slot holds the address of the data in place of the data (docs/design/connections.md,
// Zero-copy).
#include "src/executor/run.hpp"

namespace weft::internal {

// The address of the instruction's data, if it stays valid until the operation ends and the receiver shall read it; else 0.
uint64_t Run::zero_copy_address(size_t index, const Instruction& instruction, uint64_t tile, const Span& span) const {
    const BlockEnds& ends = plan_->ends[index];
    if (plan_->stable_sends.empty() || !ends.target_reads.any() || span.count != 1 ||
        span.bytes < plan_->zero_copy_least)
        return 0;
    if (!plan_->stable_sends[index][size_t(blocks_[index].step)]) return 0;
    const bool from_input = instruction.opcode == Opcode::send && instruction.source == Buffer::input;
    if (from_input && changes_input_) return 0;
    const Piece piece = tiling_.piece(tile, plan_->tile_length(tile), span.pieces[0].tile_offset, span.bytes);
    if (piece.bytes != span.bytes) return 0;
    return remote_address((from_input ? send_ : receive_) + piece.offset, piece.bytes, ends.target_reads,
                          ends.target_in_process, plan_->zero_copy_by_cma);
}

Status Run::fetch(int source, const SlotInfo& info) {
    if (fetched_.size() < info.bytes) fetched_.resize(info.bytes);
    return plan_->zero_copy_cma->read(source, fetched_.data(), info.address, info.bytes);
}

// Whether all zero-copy messages have been read. Otherwise the run waits for their receivers.
bool Run::zero_copy_done() {
    bool all = true;
    for (size_t index = 0; index < blocks_.size(); ++index)
        if (plan_->ends[index].target_reads.any() && !plan_->ends[index].target->zero_copy_done()) {
            connections_wait_.insert(plan_->schedule->blocks[index].target);
            all = false;
        }
    return all;
}

bool Run::may_be_reading(int peer) const {
    for (size_t index = 0; zero_copy_sent_ && index < plan_->ends.size(); ++index)
        if (plan_->schedule->blocks[index].target == peer && plan_->ends[index].target_reads.any() &&
            !plan_->ends[index].target->zero_copy_done())
            return true;
    return false;
}

}  // namespace weft::internal
