/* pattern_kernels.S: the device code of pattern_kernels.cu as bytes of the programs; assembled in a step of its own, as the library's is. */
    .section .rodata
    .globl perf_pattern_kernels
    .hidden perf_pattern_kernels
    .balign 64
perf_pattern_kernels:
    .incbin "pattern_kernels.fatbin"

    .section .note.GNU-stack, "", %progbits
