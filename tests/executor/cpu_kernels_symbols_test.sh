#!/bin/sh
# cpu_kernels_symbols_test.sh NM ARCHIVE...: no set of cpu_kernels brings a weak function. The linker keeps one copy of each for the
# whole program, and if that is the one compiled for AVX-512, a machine without it crashes far from here.
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
