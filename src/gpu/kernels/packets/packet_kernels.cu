// packet_kernels.cu: entry points of the packet kernels.
#include "src/gpu/kernels/kernels.hpp"
#include "src/gpu/kernels/packets/packet_two_shot.hpp"
#include "src/gpu/kernels/packets/packets.hpp"

#define WEFT_BODY packet_one_shot
#include "src/gpu/kernels/entry_points.inc"
#undef WEFT_BODY
#define WEFT_BODY packet_two_shot
#include "src/gpu/kernels/entry_points.inc"
