// step_kernels.cu: entry points of the step machine.
#include "src/executor/cuda/kernels.hpp"
#include "src/executor/cuda/steps.hpp"

#define WEFT_BODY steps
#include "src/executor/cuda/entry_points.inc"
