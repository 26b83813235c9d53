// peer_kernels.cu: entry points of the kernels that reduce in peers' mapped memory.
#include "src/gpu/kernels/kernels.hpp"
#include "src/gpu/kernels/peer_one_shot.hpp"
#include "src/gpu/kernels/peer_two_shot.hpp"

#define WEFT_BODY peer_two_shot
#include "src/gpu/kernels/entry_points.inc"
#undef WEFT_BODY
#define WEFT_BODY peer_one_shot
#include "src/gpu/kernels/entry_points.inc"
#undef WEFT_BODY
#define WEFT_SUMS_ONLY
#define WEFT_BODY local_reduce
#include "src/gpu/kernels/entry_points.inc"
