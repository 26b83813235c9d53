// export.hpp: a checkpoint as one safetensors file, which all ranks write together.
#pragma once
#include <string>

#include "src/base/result.hpp"
#include "src/train/checkpoint/plan.hpp"

namespace weft::internal::train {

class Peers;

// All ranks call it. `file` is written beside its place and replaced when it is complete.
Status export_tensors(const Peers& peers, const OpenedCheckpoint& opened, const std::string& prefix,
                      const std::string& file);

}  // namespace weft::internal::train
