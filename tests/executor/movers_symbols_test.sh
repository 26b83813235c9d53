#!/bin/sh
# movers_symbols_test.sh NM ARCHIVE...: no set of movers brings a weak function. The linker keeps one copy of each for the
# whole program, and if that is the one compiled for AVX-512, a machine without it crashes far from here.
nm=$1
shift
for archive; do
    symbols=$("$nm" "$archive") || exit 1
    case $symbols in *_movers*) ;; *) echo "$archive has no movers"; exit 1 ;; esac
    if echo "$symbols" | grep ' W '; then
        echo "$archive has weak functions: give them internal linkage, or WEFT_INLINE"
        exit 1
    fi
done
