// cpu_kernels_neon.cpp: the CPU kernels compiled for aarch64, with its conversions of fp16.
#define WEFT_CPU_KERNELS neon_cpu_kernels
#define WEFT_CPU_KERNELS_ISA "neon"
#define WEFT_VECTOR_BYTES 16
#define WEFT_NEON_CONVERSIONS 1
#include "src/kernels/cpu_kernel_set.hpp"
