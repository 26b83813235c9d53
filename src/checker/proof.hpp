// proof.hpp: runs the blocks of all ranks symbolically until all have ended or an error is found. Used once: make,
// run(), read. checker.hpp states what it proves.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/checker/checker.hpp"
#include "src/checker/happens_before.hpp"

namespace weft::internal {

class Proof {
  public:
    Proof(int ranks, std::span<const CheckedOperation> operations, const CheckOptions& options);
    Status load();
    Status run();
    uint64_t steps() const { return steps_; }
    bool in_rank_order() const { return in_rank_order_; }  // see Proved
    bool orders_differ() const { return orders_differ_; }

  private:
    struct OperationState {
        const CheckedOperation* call = nullptr;
        std::vector<Schedule> schedules;  // by rank
        // By rank and block: connections received from and sent to, -1: none.
        std::vector<std::vector<std::pair<int, int>>> ends;
        std::vector<std::vector<std::vector<bool>>> depended;  // by rank, block and step: whether others run after it
        int tiles = 0;                                         // runs * schedule.tiles
        uint32_t first_tile = 0;                               // of the sequence
        std::vector<uint32_t> first_flag_tile;                 // by rank
        std::vector<bool> empty_chunks[2];                     // of ordinary tiles and of the last
        std::vector<uint64_t> results;                         // by tile and chunk: the first rank's expression
    };
    struct ThreadState {
        int run = 0;
        int step = 0;
        int iteration = 0;
        bool ended = false;
        bool queued = false;
        // by step with dependents, and run: the clock at its end
        std::vector<std::vector<std::vector<uint32_t>>> releases;
    };
    struct RankProgress {
        int operation = 0;  // equal to the number of operations: it has returned from the last
        int blocks_left = 0;
        bool in_place = false;
        ChunkAccess start;
        std::vector<std::vector<Cell>> output;  // by tile; in place also the input
        std::vector<ChunkAccess>
            input_readers;  // out of place: the newest read by each thread of another rank; empty: none
    };
    struct SentChunks {
        std::vector<std::pair<int, Value>> values;  // by chunk, without the empty ones
        int chunk = 0;
        int count = 1;
        int step = 0;
        bool in_scratch = false;  // at the sender, or at an earlier one
    };
    struct CheckedConnection {
        int channel = 0, source = 0, target = 0;  // source: the sending rank
        std::deque<SentChunks> slots;
        int blocked_sender = -1, blocked_receiver = -1;  // threads that wait
    };
    // A slot of a rank in the flag block, or its scratch: the cells of the newest tile in it, and the accesses of the
    // tiles before.
    struct SlotCells {
        int64_t tile = -1;
        std::vector<Cell> cells;
        std::vector<ChunkAccess> earlier;  // by column, the newest; empty: none
        int checked_thread = -1;           // a thread that is known to come after all of them
    };
    // One phase of one tile of a flag block.
    struct PhaseState {
        int posted = 0;
        std::vector<bool> has_posted;     // by place in the flag block
        std::vector<uint32_t> join;       // of the clocks of all that have posted
        std::vector<ChunkAccess> waited;  // by place
        std::vector<int> waiting;         // threads
    };
    // The ranks that share a flag block, the same in all operations that use one.
    struct CheckedFlagBlock {
        std::vector<int32_t> ranks;
        uint32_t tiles = 0;
        size_t first_phase = 0;
    };
    // The present step of a thread, for rules and messages.
    struct StepContext {
        int thread, rank, block, step, iteration;
        const OperationState* operation;
        const Schedule* schedule;
        const Instruction* it;
        int tile;   // of the operation
        int chunk;  // the checked one of the span
        StepContext at(int offset) const {
            StepContext there = *this;
            there.chunk = it->chunk.at(iteration, offset);
            return there;
        }
    };

    // In proof.cpp: set-up and order.
    Status load_operation(OperationState& operation);
    Status load_flag_blocks(OperationState& operation);
    Status load_connections(OperationState& operation);
    bool begin_operation(int rank);
    bool end_operation(int rank);
    void queue(int thread);
    bool run_thread(int thread);
    bool ready(const StepContext& here);
    bool execute(const StepContext& here);
    void complete_step(const StepContext& here);
    StepContext here(int thread) const;
    bool empty(const StepContext& here) const {
        return here.operation->empty_chunks[here.tile + 1 == here.operation->tiles][here.chunk % here.schedule->chunks];
    }
    bool skipped(const StepContext& here) const;
    size_t fifo_depth(const StepContext& here) const {
        return options_.fifo_depth ? options_.fifo_depth : here.schedule->fifo_depth;
    }

    // In proof_deadlock.cpp: messages.
    Status deadlock() const;
    Status leftovers() const;
    std::string waits_for(int thread, int& next) const;
    std::string step_name(int rank, int block, int step) const;
    std::string place(const StepContext& here) const;
    std::string place(const ChunkAccess& access) const;
    bool object_to_race(const StepContext& here, const char* what, const ChunkAccess& earlier, const char* did,
                        Buffer buffer, int rank);
    template <class... Arguments>
    bool object(const StepContext& here, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
        return object(error::schedule_result, here, format, std::forward<Arguments>(arguments)...);
    }
    template <class... Arguments>
    bool object(ErrorId error, const StepContext& here, fmt::format_string<Arguments...> format,
                Arguments&&... arguments) {
        failure_ = fail(error, "{}: {}", place(here), fmt::format(format, std::forward<Arguments>(arguments)...));
        return false;
    }

    // In proof_memory.cpp: values and accesses.
    bool execute_connection(const StepContext& here);
    bool execute_copy(const StepContext& here);
    bool execute_add(const StepContext& here);
    bool execute_reduce(const StepContext& here);
    // The ranks whose memory this rank accesses: those of the flag block.
    const std::vector<int32_t>& members(const StepContext& here) const {
        return flag_blocks_[size_t(flag_block_of_[here.rank])].ranks;
    }
    bool read(const StepContext& here, Buffer buffer, int rank, Value& value);
    bool write(const StepContext& here, unsigned targets, const Value& value);
    bool read_scratch(const StepContext& here, SlotCells& slot, int number, Value& value);
    bool read_cell(const StepContext& here, Cell& cell, Buffer buffer, int rank, Value& value);
    bool write_cell(const StepContext& here, Cell& cell, Buffer buffer, int rank, const Value& value);
    bool finish(const StepContext& here, Value& value);
    bool same_call(const StepContext& here, Buffer buffer, int rank);
    Cell& output_cell(const StepContext& here, int rank);
    ChunkAccess access(const StepContext& here) {
        return {here.thread, clocks_->now(here.thread), rank_states_[here.rank].operation, here.step};
    }
    SlotCells* enter(const StepContext& here, Buffer buffer, int rank);
    bool holds_input(const StepContext& here, int rank) const;
    bool holds_output(const StepContext& here, int rank) const;
    Value input_leaf(const StepContext& here, int rank) const {
        return contributions_.leaf(rank, here.operation->first_tile + here.tile, here.chunk);
    }
    bool check_result(int rank);
    uint64_t in_rank_order(uint32_t tile, int chunk) const;
    std::string fault(OperationState& operation, const Cell& cell, int rank, int tile, int chunk);

    // In proof_flags.cpp: posts and waits.
    PhaseState& phase_state(int rank, int64_t flag_tile, int phase);
    bool execute_post(const StepContext& here);
    bool execute_wait(const StepContext& here);
    int64_t flag_tile(const StepContext& here) const {
        return int64_t(here.operation->first_flag_tile[here.rank]) + here.tile;
    }

    const int ranks_;
    const CheckOptions options_;
    std::vector<OperationState> operations_;
    int blocks_ = 1;  // the most of any rank
    Contributions contributions_;
    std::unique_ptr<Clocks> clocks_;
    ReadLists reads_;
    bool in_rank_order_ = true;
    bool orders_differ_ = false;
    std::vector<ThreadState> threads_;
    std::vector<RankProgress> rank_states_;
    std::unordered_map<uint64_t, int> connection_of_;
    std::vector<CheckedConnection> connections_;
    size_t under_way_ = 0;                  // chunks in their slots
    std::vector<SlotCells> slots_;          // by rank and slot
    std::vector<SlotCells> scratches_;      // by rank; empty: no rank has one
    std::vector<PhaseState> phase_states_;  // by flag block, its tile and phase
    std::vector<CheckedFlagBlock> flag_blocks_;
    std::vector<int> flag_block_of_;  // by rank; -1: it has none
    std::vector<int> place_of_;       // by rank: its index in its flag block
    std::vector<int> queue_;
    uint64_t steps_ = 0;
    Status failure_;
};

}  // namespace weft::internal
