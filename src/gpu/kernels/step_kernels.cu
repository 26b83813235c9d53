// step_kernels.cu: entry points of the step machine.
#include "src/gpu/kernels/kernels.hpp"
#include "src/gpu/kernels/steps.hpp"

#define WEFT_BODY steps
#include "src/gpu/kernels/entry_points.inc"
