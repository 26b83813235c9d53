// peer_kernels.cu: entry points of what reduces whole messages in memory within reach.
#include "src/executor/cuda/kernels.hpp"
#include "src/executor/cuda/peer_one_shot.hpp"
#include "src/executor/cuda/peer_two_shot.hpp"

#define WEFT_BODY peer_two_shot
#include "src/executor/cuda/entry_points.inc"
#undef WEFT_BODY
#define WEFT_BODY peer_one_shot
#include "src/executor/cuda/entry_points.inc"
#undef WEFT_BODY
#define WEFT_BODY local_reduce
#include "src/executor/cuda/entry_points.inc"
