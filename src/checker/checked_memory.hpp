// checked_memory.hpp: the buffers, slots and scratch of all ranks in a proof: the value of each chunk, and whether accesses
// to it are ordered.
#pragma once
#include <vector>

#include "src/checker/checked_results.hpp"
#include "src/checker/verdict.hpp"

namespace weft::internal {

class CheckedMemory {
  public:
    CheckedMemory(const CheckedSet& set, Clocks& clocks, Verdict& verdict);

    // The call of a rank. The user has written the input, and may have used the output, before `start`.
    void begin(int rank, int operation, const ChunkAccess& start);
    // The return of a rank. False: its output is wrong, or a rank may still access its buffers.
    bool end(int rank);
    // An instruction without connections, on one chunk.
    bool execute(const StepContext& here);
    bool read(const StepContext& here, Buffer buffer, int rank, Value& value);
    bool write(const StepContext& here, unsigned targets, const Value& value);
    bool finish(const StepContext& here, Value& value);
    const CheckedResults& results() const { return results_; }

  private:
    // The buffers of one rank in its present operation.
    struct RankBuffers {
        int operation = 0;  // equal to the number of operations: it has returned from the last
        bool in_place = false;
        ChunkAccess start;
        std::vector<std::vector<Cell>> output;  // by tile; in place also the input
        // Out of place: the newest read by each thread of another rank; empty: none.
        std::vector<ChunkAccess> input_readers;
    };
    // A slot of a rank in the flag block, or its scratch: the cells of the newest tile in it, and the accesses of the
    // tiles before.
    struct SlotCells {
        int64_t tile = -1;
        std::vector<Cell> cells;
        std::vector<ChunkAccess> earlier;  // by column, the newest; empty: none
        int checked_thread = -1;           // a thread that is known to come after all of them
    };

    bool execute_copy(const StepContext& here);
    bool execute_add(const StepContext& here);
    bool execute_reduce(const StepContext& here);
    bool read_scratch(const StepContext& here, SlotCells& slot, int number, Value& value);
    bool read_cell(const StepContext& here, Cell& cell, Buffer buffer, int rank, Value& value);
    bool write_cell(const StepContext& here, Cell& cell, Buffer buffer, int rank, const Value& value);
    bool same_call(const StepContext& here, Buffer buffer, int rank);
    Cell& output_cell(const StepContext& here, int rank);
    ChunkAccess access(const StepContext& here) {
        return {here.thread, clocks_.now(here.thread), here.number, here.step};
    }
    SlotCells* enter(const StepContext& here, Buffer buffer, int rank);
    Value input_leaf(const StepContext& here, int rank) const {
        return contributions_.leaf(rank, here.operation->first_tile + uint32_t(here.tile), uint32_t(here.chunk));
    }

    const CheckedSet& set_;
    Clocks& clocks_;
    Verdict& verdict_;
    const Contributions contributions_;
    CheckedResults results_;
    ReadLists reads_;
    std::vector<RankBuffers> ranks_;
    std::vector<SlotCells> slots_;      // by rank and slot
    std::vector<SlotCells> scratches_;  // by rank; empty: no rank has one
};

}  // namespace weft::internal
