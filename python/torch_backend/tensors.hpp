// tensors.hpp: tensors as the buffers of Weft's calls.
#pragma once
#include <ATen/ATen.h>

#include <vector>

#include "weft/weft.h"

namespace weft_torch {

// The elements of a tensor for a call that only moves them. A type that Weft does not know moves as bytes.
struct Elements {
    weftDataType_t datatype;
    size_t per_element;  // Weft's elements in one of the tensor
};
Elements moved(at::ScalarType type);

// Refuses tensors that are sparse, quantized or without memory, and a list of several types. `what` names it.
void check_tensor(const char* call, const char* what, const at::Tensor& tensor);
// Refuses tensors of devices, too.
void check_host_tensor(const char* call, const char* what, const at::Tensor& tensor);
void check_tensors(const char* call, const char* what, const std::vector<at::Tensor>& tensors);
// The only tensor of a list of one.
at::Tensor& only(const char* call, const char* what, std::vector<at::Tensor>& tensors);

// Whether the elements lie in the tensor's memory in order, without lazy conjugation or negation.
bool is_plain(const at::Tensor& tensor);
// The elements of `tensor` in order, without lazy conjugation: the tensor itself, or a copy.
at::Tensor dense(const at::Tensor& tensor);

// Weft's elements in a tensor that moves.
size_t weft_count(const at::Tensor& tensor);

// An output of a call that moves elements: the tensor's memory, or a copy that write() brings there.
class Output {
  public:
    explicit Output(at::Tensor tensor)
        : tensor_(std::move(tensor)),
          memory_(is_plain(tensor_) ? tensor_ : at::empty(tensor_.sizes(), tensor_.options())) {}
    void* data() const { return memory_.data_ptr(); }
    void write() const {
        if (!memory_.is_same(tensor_)) tensor_.copy_(memory_);
    }

  private:
    at::Tensor tensor_, memory_;
};

// Tensors that one buffer holds one behind the other. If they lie so in memory already, the buffer is their memory.
class Row {
  public:
    Row() = default;
    // Allocates no copy yet.
    explicit Row(std::vector<at::Tensor> tensors);

    void gather();  // tensors to the buffer
    void spread();  // the buffer to tensors
    // The buffer. The first use allocates it.
    void* data();
    const std::vector<size_t>& counts() const { return counts_; }  // of elements, for each tensor
    size_t total() const { return total_; }
    bool is_even() const;

  private:
    std::vector<at::Tensor> tensors_;
    std::vector<size_t> counts_;
    size_t total_ = 0;
    bool in_place_ = false;
    at::Tensor buffer_;
};

// Displacements of parts that lie one behind the other.
std::vector<size_t> displacements(const std::vector<size_t>& counts);

}  // namespace weft_torch
