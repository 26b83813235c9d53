// packet_kernels.cu: entry points of what goes by packets.
#include "src/executor/cuda/kernels.hpp"
#include "src/executor/cuda/packets.hpp"

#define WEFT_BODY packet_one_shot
#include "src/executor/cuda/entry_points.inc"
#undef WEFT_BODY
#define WEFT_BODY packet_two_shot
#include "src/executor/cuda/entry_points.inc"
