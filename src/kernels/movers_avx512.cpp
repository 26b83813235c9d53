// movers_avx512.cpp: the movers compiled for AVX-512 F, BW, DQ and VL; called only where the processor has them.
#define WEFT_MOVERS avx512_movers
#define WEFT_MOVERS_ISA "avx512"
#define WEFT_VECTOR_BYTES 64
#include "src/kernels/mover_set.hpp"
