// msccl_sums.hpp: puts the operands of a sum into the order of ranks, where the steps of a program add them in another one.
#pragma once
#include <vector>

#include "src/msccl/msccl_rank_flow.hpp"

namespace weft::internal::msccl {

// Operands that steps add to one place in turn, while no step reads the place.
struct GatheredSum {
    BufferCell own;  // the content before the first addition
    int32_t own_lowest = 0;
    struct Operand {
        BufferCell where;
        int32_t lowest;
        bool received;
        int32_t block;
        size_t move;  // index in the block
    };
    std::vector<Operand> operands = {};
};

class RankOrderedSums {
  public:
    // The step of `move` has added one more operand, and is not yet among the moves of its block. From the third
    // operand on this step does the work of the earlier ones.
    void sort(RankFlow& flow, GatheredSum& gathered, Move& move);

  private:
    int32_t sorted_cells_ = 0;
};

}  // namespace weft::internal::msccl
