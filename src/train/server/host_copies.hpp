// host_copies.hpp: parameters in host memory, for a parameter server whose rank may have them on a device.
#pragma once
#include <vector>

#include "src/train/flat_buffer.hpp"
#include "src/train/memory_space.hpp"
#include "src/train/model.hpp"

namespace weft::internal::train {

class Peers;

// Its space must outlive it. Thread-bound.
class HostCopies {
  public:
    // Before the others: for parameters in `space`. In host memory they are their own copies.
    Status reserve(MemorySpace& space, const std::vector<Tensor>& parameters);

    // The data is in host memory.
    const std::vector<Tensor>& tensors() const { return on_host_; }
    // All ranks call it: the values of rank 0, in the copies and in the parameters' memory.
    Status broadcast(const Peers& peers);
    // Copies one to the parameter's memory. Does not wait.
    Status write(int parameter);
    // No copy is needed any more.
    void release() { staging_ = FlatBuffer(); }

  private:
    MemorySpace* space_ = nullptr;
    std::vector<Tensor> parameters_, on_host_;
    FlatBuffer staging_;  // of a device
};

}  // namespace weft::internal::train
