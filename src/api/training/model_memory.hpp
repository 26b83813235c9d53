// model_memory.hpp: the memory that a model lies in, and the streams of calls on it.
#pragma once
#include <initializer_list>
#include <memory>
#include <vector>

#include "src/base/result.hpp"
#include "src/train/memory_space.hpp"
#include "src/train/model.hpp"
#include "weft/train.h"

namespace weft::internal {

// `function` names the caller's call in errors. Gradients of the caller's own are taken if there are some.
Status read_parameters(const char* function, const weftTrainTensor_t* tensors, size_t count,
                       std::vector<train::Tensor>& read);
// The one kind of memory that all of them lie in: host memory, or the communicator's device.
Result<std::unique_ptr<train::MemorySpace>> space_of(std::initializer_list<const std::vector<train::Tensor>*> tensors,
                                                     weftComm_t comm);
// Whether the caller's stream suits an object in this memory.
Status check_stream_of(const char* function, const train::MemorySpace& space, weftStream_t stream);

}  // namespace weft::internal
