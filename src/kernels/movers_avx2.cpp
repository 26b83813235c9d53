// movers_avx2.cpp: the movers compiled for AVX2 and F16C; called only where the processor has both.
#define WEFT_MOVERS avx2_movers
#define WEFT_MOVERS_ISA "avx2"
#define WEFT_VECTOR_BYTES 32
#include "src/kernels/mover_set.hpp"
