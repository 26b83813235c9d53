// sparse.hpp: an all-reduce of sparse tensors (COO), as two all-gathers of unequal parts.
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "weft/weft.h"

namespace weft_torch {

bool is_sparse(const std::vector<at::Tensor>& tensors);

// The sum of a tensor of every rank. The ranks' tensors have one shape and type, and any number of elements.
class SparseSum {
  public:
    // Refuses other layouts, devices and reductions. `call` names the call.
    SparseSum(const char* call, at::Tensor tensor, const c10d::ReduceOp& op);
    // Gathers the elements of all ranks. Blocks.
    void gather(weftComm_t comm, int ranks);
    // Adds them up, and writes the sum to the tensor.
    void write();

  private:
    const char* const call_;
    const at::Tensor tensor_;
    at::Tensor indices_, values_;  // of all ranks
};

}  // namespace weft_torch
