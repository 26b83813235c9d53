// stored.hpp: whether the metadata of a checkpoint describes whole tensors that its data files can hold.
#pragma once
#include <string>

#include "src/base/result.hpp"
#include "src/train/checkpoint/plan.hpp"

namespace weft::internal::train {

// Boxes have checksums and lie within their files. The boxes of a tensor have one shape and datatype, and hold each
// element once; an item is one box. A failure names the tensor and a file. `folder` names the checkpoint in errors.
Status check_stored(const Metadata& metadata, const TensorIndex& index, const std::string& folder);

}  // namespace weft::internal::train
