// statistics.hpp: the times that Weft predicts for calls of torch.
#pragma once
#include <ATen/ATen.h>

#include <string_view>
#include <vector>

#include "weft/weft.h"

namespace weft_torch {

// The time that Weft predicts for the call of this title ("weft:all_reduce"), in microseconds. Local: no communication.
double predicted_us(std::string_view title, const std::vector<at::Tensor>& inputs,
                    const std::vector<at::Tensor>& outputs, int ranks, weftComm_t comm);

}  // namespace weft_torch
