// run.hpp: one execution of a plan: buffers bound, and how far it has come. The step machine moves it.
#pragma once
#include <vector>

#include "src/base/rank_set.hpp"
#include "src/executor/plan.hpp"

namespace weft::internal {

enum class Progress : uint8_t {
    moved,    // something happened; call again
    blocked,  // waits for missing()
    done,
    mismatch,  // suspect() called something else
    failed,    // failure()
};

// Thread-bound to the rank. Kept and started again, so that a call allocates nothing.
class Run {
  public:
    explicit Run(const Plan& plan);
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    // Binds the buffers of one call: those parts that the rank holds (base/collective.hpp); null where it holds none.
    // `operand`, of a reduction that was made: the rank's own factor if the plan is scaled, its UserReduction if it
    // calls a function; else null. Buffers are disjoint, or where one holds what is also in the other they are the same
    // memory there.
    void start(const void* send, void* receive, const void* operand, uint64_t sequence);
    // Does what can be done without waiting; never blocks.
    Progress advance();

    const Plan& plan() const { return *plan_; }
    const RankSet& missing() const { return *missing_; }
    // Of a blocked run: what a sleeper polls for, besides the words in shared memory.
    void add_descriptors(std::vector<pollfd>& list) const;
    int suspect() const { return suspect_; }
    // Of which operation its message was, if it was a message; else 0.
    uint64_t suspect_operation() const { return suspect_operation_; }
    Status take_failure() { return std::move(failure_); }
    // Whether peers may be reading or writing the buffers of this call in place, and whether one of them still can
    // (docs/design/shared-memory-protocol.md, rule 9).
    bool shares_buffers() const { return shares_buffers_; }
    bool may_be_using(int peer) const;
    // The same of what messages lent a peer.
    bool may_be_reading(int peer) const;

  private:
    enum class Stage : uint8_t { begin, arrivals, departures, pipeline, agreement, ended };

    struct BlockState {
        uint64_t tile = 0;
        int32_t step = 0;            // index of the instruction
        int32_t iteration = 0;       // of a repeated instruction
        Stage stage = Stage::begin;  // of a flag block or fused instruction
        bool ended = false;
        enum class Wait : uint8_t { none, source, target } wait = Wait::none;  // for which connection
    };

    using Range = ChunkRange;
    using Span = ChunkSpan;

    // run.cpp: any block, any instruction.
    Progress advance_blocks();
    Progress advance_block(size_t index);
    Progress execute(size_t index, const Instruction& instruction);
    Progress move_local(const Instruction& instruction, int iteration, uint64_t tile);
    void move_piece(const Instruction& instruction, int iteration, uint64_t tile, const Piece& piece);
    void copy_chunk_into(const Instruction& instruction, int iteration, uint64_t tile);
    // Calls use(piece) for all that lies side by side in the tile and in the buffers alike, in the span's order.
    template <class Use>
    void each_piece(const Span& span, uint64_t tile, Use&& use) const {
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
    // Where a piece lies in this rank's memory: what an instruction reads of it (scaled input: in scratch), and all
    // that it writes, at most `targets_most`, the output first.
    static constexpr int targets_most = 3;
    const std::byte* own_source(const Instruction& instruction, uint64_t tile, const Piece& piece);
    int own_targets(const Instruction& instruction, uint64_t tile, const Piece& piece, void** destinations);
    std::byte* scratch_at(int cell, const Piece& piece) const {
        return tile_scratch_ + (cell < 0 ? piece.tile_offset : size_t(cell) * cell_bytes_);
    }
    Progress await(const Instruction& instruction, BlockState& state, uint64_t tile);
    bool reached(const Dependency& dependency, uint64_t tile) const;

    // connected.cpp: what moves over connections.
    Progress move_connection(size_t index, const Instruction& instruction, uint64_t tile);
    std::optional<Progress> move_past_slots(size_t index, const Instruction& instruction, uint64_t tile,
                                            const Span& span);
    Progress blocked_on(size_t index, bool source);
    Progress suspects(int rank, const SlotInfo& message);
    Result<bool> flush();

    // inline_program.cpp: calls of a few bytes.
    struct InlineStep {
        Opcode opcode;
        bool finish, left, from_input;  // as the instruction says
        int32_t block = 0, place = 0;   // the instruction; in a block each step comes after the one before it
        int32_t after = -1;             // and after this one; -1: none
        Receiver* source = nullptr;
        Sender* target = nullptr;
        size_t bytes = 0, from = 0, to = 0;  // `from` and `to` in the call's buffers
        uint64_t ended = 0;                  // the turn in which it was taken last
    };
    std::vector<InlineStep> make_inline_program() const;
    Progress advance_inline();
    Progress take_inline_step(const InlineStep& step);

    // zero_copy.cpp: what messages lend.
    bool zero_copy_done();
    uint64_t zero_copy_address(size_t index, const Instruction& instruction, uint64_t tile, const Span& span) const;
    Status fetch(int source, const SlotInfo& info);

    // shared_memory_collective.cpp: the fused instructions; each runs all tiles of the operation.
    Progress one_shot(BlockState& state);
    Progress two_shot(BlockState& state);  // also a one-shot whose buffers may be offered
    Progress two_shot_direct(BlockState& state);
    void stage_input(uint64_t tile);
    void post_addresses_and_arrival(uint64_t tile);
    Progress decide(BlockState& state);
    bool nobody_exports() const;
    void reduce_whole(uint64_t tile);
    Progress finish_two_shot(uint64_t flag_tiles);
    Progress cma_own_chunk();
    bool uses_cma() const { return plan_->cma && plan_->cma->state() == Cma::State::ready; }
    Progress abandon();
    void reduce_own_chunk(uint64_t tile, const CopyJob* staging, int staging_count, const CopyJob* results,
                          int results_count);
    void copy_results(uint64_t tile);
    int staging_jobs(uint64_t tile, Stores stores, CopyJob* jobs);
    int result_jobs(uint64_t tile, CopyJob* jobs);

    // flag_block.cpp: words of the flag block.
    void post_arrival(uint64_t tile);
    void post_departure(uint64_t tile);
    // Waits are armed, then polled until everybody has come: entries of one tile, dones of another, or both.
    static constexpr uint64_t no_tile = ~uint64_t(0);
    void arm(uint64_t arrival_tile, uint64_t departure_tile);
    Progress poll() { return poll(waiting_, wait_arrival_, wait_departure_); }
    // `waiting`: places on the board; those that have come are erased.
    Progress poll(RankSet& waiting, uint64_t arrival_tile, uint64_t departure_tile);
    uint32_t flag_tile(uint64_t tile) const { return base_tile_ + uint32_t(tile); }
    // By place among the flag block's ranks; a fused instruction's flag block is one of all ranks, whose places are their
    // numbers.
    FlagLine& line(int place, uint64_t tile) const { return plan_->flag_block->line(members_[place], flag_tile(tile)); }
    // Where all slots together hold no more than the payload of a line, that: it comes along with the entry.
    std::byte* slot(int place, uint64_t tile) const {
        return inline_payload_ ? line(place, tile).payload
                               : plan_->flag_block->slot(members_[place], flag_tile(tile), plan_->rotation);
    }
    int place_of(int rank) const;

    // Of a fused instruction: a rank's share.
    Range chunk_of(uint64_t tile, int chunk) const { return chunk_range(plan_->tile_length(tile), ranks_, chunk, 1); }
    Span span_of(const Instruction& instruction, int iteration, uint64_t tile) const {
        return chunk_span(instruction, iteration, plan_->tile_length(tile), plan_->schedule->chunks, parts_);
    }
    const std::byte* input_at(size_t offset) const { return send_ + offset; }
    void copy_out(const Instruction& instruction, int iteration, uint64_t tile, const Piece& from,
                  void* const* destinations, int count);
    // This rank's contribution: of a scaled sum its product, in scratch; of an average as the rank gave it.
    const std::byte* own_input(size_t offset, size_t bytes);
    // `stores`: of a slot, where the destination is one.
    void copy_input(std::byte* destination, size_t offset, size_t bytes, SlotStores* stores = nullptr);
    void copy_to(void* destination, const void* source, size_t bytes, SlotStores* stores = nullptr) const;
    SlotStores& flag_block_stores() const { return plan_->slot_stores[rank_]; }
    // Only the first `streamed` destinations go past the caches, if the plan's stores do. `own`: the source that is this
    // rank's input, not yet multiplied by its share of an average; -1: none is.
    void reduce(void* const* destinations, int destination_count, const void* const* sources, int source_count,
                size_t bytes, bool finish, int streamed, int own = -1);
    void reduce(const ReduceJob& job);
    ReduceJob reduction_with_slot(Stores of_slot, void** destinations, int count, const void* const* sources,
                                  int source_count, size_t bytes, bool finish, int streamed, int own = -1) const;
    ReduceJob reduction(void* const* destinations, int destination_count, const void* const* sources, int source_count,
                        size_t bytes, bool finish, int streamed, int own = -1) const;

    const Plan* plan_;
    const std::byte* send_ = nullptr;  // both where the whole would begin
    std::byte* receive_ = nullptr;
    const void* operand_ = nullptr;  // see start()
    uint64_t sequence_ = 0;
    int rank_;
    int ranks_;
    int parts_;
    Tiling tiling_;
    Held input_held_, output_held_;
    Averaging average_;
    bool changes_input_;
    int place_ = 0;  // of this rank among the flag block's members
    const int32_t* members_;
    bool fits_inline_ = false;  // the whole: a line's payload can hold it
    bool inline_payload_ = false;
    bool fused_ = false;         // one fused instruction, which walks the tiles itself
    bool stages_whole_ = false;  // a one-shot
    bool one_phase_ = false;     // and no offered buffer is used in it

    std::vector<BlockState> blocks_;
    std::vector<InlineStep> inline_program_;  // what it does, if that is all
    uint64_t inline_call_ = 0;                // the call
    size_t inline_first_ = 0;                 // all steps before it are done
    RankSet waiting_;                         // of a fused instruction
    RankSet phase_waiting_[2];                // of the blocks that wait for a phase: places on the flag block
    RankSet connections_wait_;                // of blocks that wait for connections
    const RankSet* missing_ = &waiting_;
    int suspect_ = -1;
    uint64_t suspect_operation_ = 0;
    Status failure_;

    uint32_t base_tile_ = 0;  // of the flag block, when the operation began
    uint64_t wait_arrival_ = no_tile, wait_departure_ = no_tile;
    bool exports_input_ = false;                      // peers read our input in place: it is not staged
    bool shares_buffers_ = false;                     // peers use our buffers, or we theirs
    uint64_t last_tile_ = 0;                          // of those that touch lent buffers
    uint32_t agreement_due_ = 0;                      // bits of Agreement
    std::vector<uint64_t> cma_inputs_, cma_outputs_;  // by rank, addresses in its process
    std::vector<const void*> sources_;
    std::vector<const std::byte*> inputs_;  // of ranks that let us read in place, else null
    std::vector<std::byte*> outputs_;       // direct: of all ranks
    std::vector<void*> destinations_;
    std::vector<CopyJob> staging_, results_;
    std::vector<std::byte> scratch_;     // of scaled inputs, and of what the kernel copies
    bool zero_copy_sent_ = false;        // messages lent something
    std::vector<std::byte> fetched_;     // what a message lent us, where it is not copied into place at once
    std::byte* tile_scratch_ = nullptr;  // Buffer::scratch
    size_t cell_bytes_ = 0;              // of its cells
};

}  // namespace weft::internal
