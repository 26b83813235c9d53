// cpu_kernels_avx2.cpp: the CPU kernels compiled for AVX2 and F16C; called only where the processor has both.
#define WEFT_CPU_KERNELS avx2_cpu_kernels
#define WEFT_CPU_KERNELS_ISA "avx2"
#define WEFT_VECTOR_BYTES 32
#include "src/kernels/cpu_kernel_set.hpp"
