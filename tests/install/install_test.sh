#!/bin/sh
# install_test.sh BUILD: installs into an empty folder, then builds and runs a C program the way a user would, by pkg-config,
# and the installed examples by their Makefile.
set -eu
build=$1
here=$(cd "$(dirname "$0")" && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

DESTDIR=$place meson install -C "$build" --no-rebuild --quiet
pc=$(find "$place" -name weft.pc)
[ -n "$pc" ] || { echo "no weft.pc was installed"; exit 1; }
PKG_CONFIG_LIBDIR=$(dirname "$pc")  # nothing of this machine: weft.pc must suffice
PKG_CONFIG_SYSROOT_DIR=$place
export PKG_CONFIG_LIBDIR PKG_CONFIG_SYSROOT_DIR
version=$(pkg-config --modversion weft)
library=$(find "$place" -name "libweft.so.$version")
[ -n "$library" ] || { echo "no libweft.so.$version was installed"; exit 1; }

soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\].*/\1/p')
[ "$soname" = "libweft.so.${version%%.*}" ] || { echo "soname is $soname, version is $version"; exit 1; }

# shellcheck disable=SC2046
cc -std=c11 -Wall -Wextra -Werror "$here/client.c" -o "$place/client" $(pkg-config --cflags --libs weft)
readelf -d "$place/client" | grep -q "NEEDED.*\[$soname\]" || { echo "the program does not need $soname"; exit 1; }
found=$(LD_LIBRARY_PATH=$(dirname "$library") "$place/client")
[ "$found" = "$version" ] || { echo "the program says version $found, pkg-config says $version"; exit 1; }
if LD_LIBRARY_PATH='' "$place/client" >/dev/null 2>&1; then echo "the program runs without the installed library"; exit 1; fi

pages=$(find "$place" -path '*/man/man3/weftAllReduce.3')
[ -n "$pages" ] || { echo "no manual pages were installed"; exit 1; }

# The examples, as their own Makefile builds them; as a job where the launcher was built too.
makefile=$(find "$place" -path '*/doc/weft/examples/Makefile')
[ -n "$makefile" ] || { echo "no examples were installed"; exit 1; }
mkdir "$place/examples"
flags='-O1 -Wall -Wextra -Werror'
make -C "$place/examples" -f "$makefile" "CFLAGS=$flags" "CXXFLAGS=$flags" >"$place/make.log" 2>&1 ||
    { cat "$place/make.log"; echo "the examples do not build"; exit 1; }
launcher=$(find "$place" -path '*/bin/weft')
if [ -n "$launcher" ]; then set -- "$launcher" run -n 2 --no-kill; else set --; fi
built=0
for source in "$(dirname "$makefile")"/*.c "$(dirname "$makefile")"/*.cpp; do
    name=$(basename "${source%.*}")
    wanted=0
    case $name in
        errors_and_deadlines) [ $# -gt 0 ] || continue ;;                 # wants a second rank
        elastic_replicas) [ $# -gt 0 ] || continue; wanted=$((128 + 9)) ;;  # one of its ranks kills itself
    esac
    status=0
    LD_LIBRARY_PATH=$(dirname "$library") "$@" "$place/examples/$name" >"$place/$name.log" 2>&1 || status=$?
    [ "$status" = "$wanted" ] || { cat "$place/$name.log"; echo "$name failed: status $status, not $wanted"; exit 1; }
    built=$((built + 1))
done
[ "$built" -ge 6 ] || { echo "only $built examples were built and run"; exit 1; }

# The benchmarks under nccl-tests' names; they find the library where it was installed, and `weft perf` finds them.
if [ -x "$build/perf/all_reduce_perf" ]; then
    for name in all_reduce all_gather reduce_scatter broadcast reduce alltoall gather scatter sendrecv; do
        program=$(find "$place" -path "*/bin/${name}_perf")
        [ -n "$program" ] || { echo "no ${name}_perf was installed"; exit 1; }
    done
    "$program" -t 2 -b 8 -e 8 -n 1 >"$place/perf.log" 2>&1 || { cat "$place/perf.log"; echo "$program failed"; exit 1; }
    if [ -n "$launcher" ]; then
        "$launcher" perf all_reduce -t 2 -b 8 -e 8 -n 1 >"$place/perf.log" 2>&1 ||
            { cat "$place/perf.log"; echo "weft perf failed"; exit 1; }
        grep -q 'Out of bounds values : 0 OK' "$place/perf.log" || { cat "$place/perf.log"; exit 1; }
        if "$launcher" perf | grep 'not installed'; then echo "weft perf does not find them"; exit 1; fi
        status=0
        "$launcher" perf nonsense >"$place/perf.log" 2>&1 || status=$?
        [ "$status" = 2 ] || { echo "weft perf nonsense has status $status"; exit 1; }
    fi
fi

# NCCL's interface, in a folder of its own; it finds libweft.so in the folder above.
nccl=$(find "$place" -path '*/weft-nccl/libnccl.so.2')
if [ -n "$nccl" ]; then
    found=$(python3 -c 'import ctypes, sys; v = ctypes.c_int(); ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(v)); print(v.value)' "$nccl")
    [ "$found" = 23007 ] || { echo "the installed $nccl says version $found"; exit 1; }
    if [ -n "$launcher" ]; then
        folder=$("$launcher" nccl-path)
        [ "$folder" = "$(dirname "$nccl")" ] || { echo "weft nccl-path prints $folder, not the folder of $nccl"; exit 1; }
    fi
fi

if find "$place" \( -name 'libweft_inside*' -o -name '*.hpp' -path '*src*' \) | grep .; then echo "private parts were installed"; exit 1; fi
echo "installed $soname, version $version: $(find "$place" \( -type f -o -type l \) | wc -l) files"
