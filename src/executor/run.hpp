// run.hpp: one execution of a plan: its buffers and its state. The step machine advances it.
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

// Owned by PreparedPlan. Thread-bound to the rank. It is reused, so that a call allocates nothing.
class Run {
  public:
    explicit Run(const Plan& plan);
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    // Binds the buffers of one call: the parts that the rank holds (base/collective.hpp), or null. `operand`: the rank's
    // factor if the plan is scaled, its UserReduction if it calls a function; else null. Buffers are disjoint or in place.
    void start(const void* send, void* receive, const void* operand, uint64_t sequence);
    // Progresses as far as possible; never blocks.
    Progress advance();

    const Plan& plan() const { return *plan_; }
    const RankSet& missing() const { return *missing_; }
    // The sockets that a blocked run waits for, besides the flags in shared memory.
    void add_descriptors(std::vector<pollfd>& list) const;
    int suspect() const { return suspect_; }
    // The operation of the suspect's message; 0: it was no message.
    uint64_t suspect_operation() const { return suspect_operation_; }
    Status take_failure() { return std::move(failure_); }
    // Whether peers may be reading or writing the buffers of this call in place, and whether one of them still can
    // (docs/design/shared-memory-protocol.md, rule 9).
    bool shares_buffers() const { return shares_buffers_; }
    bool may_be_using(int peer) const;
    // Whether a peer may be reading zero-copy messages of this call.
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

    // run.cpp: all instructions.
    Progress advance_blocks();
    Progress advance_block(size_t index);
    Progress execute(size_t index, const Instruction& instruction);
    Progress move_local(const Instruction& instruction, int iteration, uint64_t tile);
    void move_piece(const Instruction& instruction, int iteration, uint64_t tile, const Piece& piece);
    void copy_chunk_into(const Instruction& instruction, int iteration, uint64_t tile);
    // Calls use(piece) for each part of the span that is contiguous in the tile and in the buffers.
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
    // The source of a piece in this rank's memory (a scaled input lies in scratch), and its destinations, at most
    // `targets_most`, the output first.
    static constexpr int targets_most = 3;
    const std::byte* own_source(const Instruction& instruction, uint64_t tile, const Piece& piece);
    int own_targets(const Instruction& instruction, uint64_t tile, const Piece& piece, void** destinations);
    std::byte* scratch_at(int cell, const Piece& piece) const {
        return tile_scratch_ + (cell < 0 ? piece.tile_offset : size_t(cell) * cell_bytes_);
    }
    Progress await(const Instruction& instruction, BlockState& state, uint64_t tile);
    bool reached(const Dependency& dependency, uint64_t tile) const;

    // connected.cpp: data over connections.
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
        int32_t after = -1;             // also after this step; -1: none
        Receiver* source = nullptr;
        Sender* target = nullptr;
        size_t bytes = 0, from = 0, to = 0;  // `from` and `to` in the call's buffers
        uint64_t ended = 0;                  // the last call that executed it
    };
    std::vector<InlineStep> make_inline_program() const;
    Progress advance_inline();
    Progress take_inline_step(const InlineStep& step);

    // zero_copy.cpp: zero-copy messages.
    bool zero_copy_done();
    uint64_t zero_copy_address(size_t index, const Instruction& instruction, uint64_t tile, const Span& span) const;
    Status fetch(int source, const SlotInfo& info);

    // shared_memory_collective.cpp: the fused instructions. Each executes all tiles of the operation.
    Progress one_shot(BlockState& state);
    Progress two_shot(BlockState& state);  // also a one-shot whose buffers may be exported
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

    // flag_block.cpp: flags of the flag block.
    void post_arrival(uint64_t tile);
    void post_departure(uint64_t tile);
    // A wait is armed, then polled: for the arrivals of one tile, the departures of another one, or both.
    static constexpr uint64_t no_tile = ~uint64_t(0);
    void arm(uint64_t arrival_tile, uint64_t departure_tile);
    Progress poll() { return poll(waiting_, wait_arrival_, wait_departure_); }
    // `waiting`: places in the flag block. Places whose flags are set are erased.
    Progress poll(RankSet& waiting, uint64_t arrival_tile, uint64_t departure_tile);
    uint32_t flag_tile(uint64_t tile) const { return base_tile_ + uint32_t(tile); }
    // `place`: the index among the flag block's ranks. A fused instruction uses a flag block of all ranks, so the place is
    // the rank.
    FlagLine& line(int place, uint64_t tile) const { return plan_->flag_block->line(members_[place], flag_tile(tile)); }
    // A payload serves as the slot if the whole fits into it: it arrives in the same cache line as the flag.
    std::byte* slot(int place, uint64_t tile) const {
        return inline_payload_ ? line(place, tile).payload
                               : plan_->flag_block->slot(members_[place], flag_tile(tile), plan_->rotation);
    }
    int place_of(int rank) const;

    // A rank's share in a fused instruction.
    Range chunk_of(uint64_t tile, int chunk) const { return chunk_range(plan_->tile_length(tile), ranks_, chunk, 1); }
    Span span_of(const Instruction& instruction, int iteration, uint64_t tile) const {
        return chunk_span(instruction, iteration, plan_->tile_length(tile), plan_->schedule->chunks, parts_);
    }
    const std::byte* input_at(size_t offset) const { return send_ + offset; }
    void copy_out(const Instruction& instruction, int iteration, uint64_t tile, const Piece& from,
                  void* const* destinations, int count);
    // This rank's contribution. A scaled sum's product lies in scratch. An average's is not divided yet.
    const std::byte* own_input(size_t offset, size_t bytes);
    // `stores`: set if the destination is a slot.
    void copy_input(std::byte* destination, size_t offset, size_t bytes, SlotStores* stores = nullptr);
    void copy_to(void* destination, const void* source, size_t bytes, SlotStores* stores = nullptr) const;
    SlotStores& flag_block_stores() const { return plan_->slot_stores[rank_]; }
    // The first `streamed` destinations are stored past the caches, if the plan's stores are. `own`: the index of the
    // source that is this rank's input and not yet multiplied by its share of an average; -1: none.
    void reduce(void* const* destinations, int destination_count, const void* const* sources, int source_count,
                size_t bytes, bool finish, int streamed, int own = -1);
    void reduce(const ReduceJob& job);
    ReduceJob reduction_with_slot(Stores of_slot, void** destinations, int count, const void* const* sources,
                                  int source_count, size_t bytes, bool finish, int streamed, int own = -1) const;
    ReduceJob reduction(void* const* destinations, int destination_count, const void* const* sources, int source_count,
                        size_t bytes, bool finish, int streamed, int own = -1) const;

    const Plan* plan_;
    const std::byte* send_ = nullptr;  // both point to where the whole would begin
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
    bool fits_inline_ = false;  // a line's payload can hold the whole
    bool inline_payload_ = false;
    bool fused_ = false;         // one fused instruction, which executes all tiles itself
    bool stages_whole_ = false;  // a one-shot
    bool one_phase_ = false;     // a one-shot that uses no exported buffer

    std::vector<BlockState> blocks_;
    std::vector<InlineStep> inline_program_;  // empty: the blocks are executed
    uint64_t inline_call_ = 0;                // the number of the call
    size_t inline_first_ = 0;                 // all steps before it are done
    RankSet waiting_;                         // ranks that a fused instruction waits for
    RankSet phase_waiting_[2];                // places in the flag block that blocks wait for, by phase
    RankSet connections_wait_;                // ranks whose connections blocks wait for
    const RankSet* missing_ = &waiting_;
    int suspect_ = -1;
    uint64_t suspect_operation_ = 0;
    Status failure_;

    uint32_t base_tile_ = 0;  // the flag block's tile when the operation began
    uint64_t wait_arrival_ = no_tile, wait_departure_ = no_tile;
    bool exports_input_ = false;                      // peers read our input in place, so it is not staged
    bool shares_buffers_ = false;                     // peers use our buffers, or we theirs
    uint64_t last_tile_ = 0;                          // the last tile that accesses exported buffers
    uint32_t agreement_due_ = 0;                      // bits of Agreement
    std::vector<uint64_t> cma_inputs_, cma_outputs_;  // by rank, addresses in its process
    std::vector<const void*> sources_;
    std::vector<const std::byte*> inputs_;  // by rank: the input that is read in place, or null
    std::vector<std::byte*> outputs_;       // direct: by rank
    std::vector<void*> destinations_;
    std::vector<CopyJob> staging_, results_;
    std::vector<std::byte> scratch_;     // for scaled inputs and CMA copies
    bool zero_copy_sent_ = false;        // some message was zero-copy
    std::vector<std::byte> fetched_;     // a zero-copy message that is reduced
    std::byte* tile_scratch_ = nullptr;  // Buffer::scratch
    size_t cell_bytes_ = 0;              // of a cell of tile_scratch_
};

}  // namespace weft::internal
