// tensors.hpp: reads the caller's arrays of weftTrainTensor_t, of any version.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "weft/train.h"

namespace weft::internal {

// Copies entry `number` of an array whose entries say their size. `kind` names the entries in errors.
Result<weftTrainTensor_t> read_entry(const weftTrainTensor_t* tensors, size_t number, const char* kind);
// Checks one of the caller's tensors. `names` are those of its kind before it. A parameter has a gradient.
Status check_tensor(const weftTrainTensor_t& tensor, const char* kind, size_t number, bool has_gradient,
                    std::set<std::string>& names);

}  // namespace weft::internal
