// cpu_kernels_avx512.cpp: the CPU kernels compiled for AVX-512 F, BW, DQ and VL; called only where the processor has them.
#define WEFT_CPU_KERNELS avx512_cpu_kernels
#define WEFT_CPU_KERNELS_ISA "avx512"
#define WEFT_VECTOR_BYTES 64
#include "src/kernels/cpu_kernel_set.hpp"
