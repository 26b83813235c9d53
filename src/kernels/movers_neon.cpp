// movers_neon.cpp: the movers compiled for aarch64, with its conversions of fp16.
#define WEFT_MOVERS neon_movers
#define WEFT_MOVERS_ISA "neon"
#define WEFT_VECTOR_BYTES 16
#define WEFT_NEON_CONVERSIONS 1
#include "src/kernels/mover_set.hpp"
