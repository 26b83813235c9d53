// host_tensors.hpp: reads parameters of training that takes host memory only.
#pragma once
#include <vector>

#include "src/base/result.hpp"
#include "src/train/model.hpp"
#include "weft/train.h"

namespace weft::internal {

// `function` names the caller's call in errors. Gradients of the caller's own are taken if there are some.
Status read_host_parameters(const char* function, const weftTrainTensor_t* tensors, size_t count,
                            std::vector<train::Tensor>& read);

}  // namespace weft::internal
