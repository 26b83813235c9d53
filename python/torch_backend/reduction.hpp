// reduction.hpp: torch's reductions of a tensor as Weft's.
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "weft/weft.h"

namespace weft_torch {

// How one call reduces tensors of one type. Weft has no 16-bit integers: they travel as 32-bit ones, whose low halves are
// the same sums and products. A bool travels as a byte of 0 or 1: SUM is a maximum, PRODUCT a minimum.
class Reduction {
  public:
    // Of tensors with the type and on the device of `like`. Refuses what has no meaning for the type. `call` names the call.
    Reduction(const char* call, const at::Tensor& like, const c10d::ReduceOp& op);

    // A dense tensor of Weft's elements with the values of `tensor`; its memory if possible.
    at::Tensor operand(const at::Tensor& tensor) const;
    // An uninitialised operand for a result that goes to `tensor`; its memory if possible.
    at::Tensor receiver(const at::Tensor& tensor) const;
    // Writes a result to `tensor`, unless it lies there already.
    void write(const at::Tensor& tensor, const at::Tensor& result) const;

    weftDataType_t datatype() const { return datatype_; }
    // Weft's elements in one of the tensor.
    size_t per_element() const { return per_element_; }
    // A factor on the device, which the call reads when it runs.
    std::vector<at::Tensor> device_factor() const;
    // The reduction on `comm`. A factor makes one, which the caller frees by release() after the call.
    weftRedOp_t make(weftComm_t comm);
    void release(weftRedOp_t op, weftComm_t comm) const;

  private:
    at::ScalarType carried_;  // of the operands
    weftDataType_t datatype_;
    size_t per_element_ = 1;
    weftRedOp_t op_ = weftSum;
    at::Tensor factor_;  // of PREMUL_SUM: one element of host memory, or the caller's on a device; else undefined
    at::Tensor operand_factor_;  // a copy of the latter, of Weft's type
};

}  // namespace weft_torch
