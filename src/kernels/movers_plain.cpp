// movers_plain.cpp: the movers for any processor of the architecture: what the compiler may use without being asked.
#define WEFT_MOVERS plain_movers
#define WEFT_MOVERS_ISA "plain"
#define WEFT_VECTOR_BYTES 16
#include "src/kernels/mover_set.hpp"
