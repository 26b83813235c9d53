// cpu_kernels_plain.cpp: the CPU kernels for any processor of the architecture, with the compiler's default instructions.
#define WEFT_CPU_KERNELS plain_cpu_kernels
#define WEFT_CPU_KERNELS_ISA "plain"
#define WEFT_VECTOR_BYTES 16
#include "src/kernels/cpu_kernel_set.hpp"
