#!/bin/sh
# cpu_kernels_symbols_test.sh NM ARCHIVE...: no set of CPU kernels defines a weak function. The linker keeps one copy of
# each for the whole program. If it keeps the AVX-512 one, a machine without AVX-512 crashes far from here.
nm=$1
shift
for archive; do
    symbols=$("$nm" "$archive") || exit 1
    case $symbols in *_cpu_kernels*) ;; *) echo "$archive has no cpu_kernels"; exit 1 ;; esac
    if echo "$symbols" | grep ' W '; then
        echo "$archive has weak functions: give them internal linkage, or WEFT_INLINE"
        exit 1
    fi
done
