#!/usr/bin/env bash
# gpu_targets_test.sh SOURCE TOOLKIT: the build takes the gpu_targets that nvcc knows, and the nearest older one for
# others. Without one it builds no kernels. TOOLKIT: its headers are used, its nvcc is not.
set -uo pipefail
source=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
fail() { echo "gpu_targets_test: $1"; exit 1; }
mkdir -p "$folder/toolkit/bin" && ln -s "$2/include" "$folder/toolkit/include" || exit 1
cat >"$folder/toolkit/bin/nvcc" <<'TEXT'
#!/bin/sh
case "$*" in
    *--version*) echo "Cuda compilation tools, release 12.4, V12.4.131" ;;
    *--list-gpu-arch*) for number in 75 80 86 90 90a; do echo compute_$number; done ;;
    *) exit 1 ;;
esac
TEXT
chmod +x "$folder/toolkit/bin/nvcc"

# targets_of GPU_TARGETS: the targets that are configured for them; the output is in $folder/said.
targets_of() {
    rm -rf "$folder/build"
    meson setup "$folder/build" "$source" -Dtests=disabled -Dexamples=disabled -Dtools=disabled -Dperf=disabled -Dhwloc=disabled \
        "-Dtoolkit=$folder/toolkit" "-Dgpu_targets=$1" >"$folder/said" 2>&1 || { cat "$folder/said"; fail "$1 does not configure"; }
    grep -oE "code=\[[^]]*\]" "$folder/build/build.ninja" | sort -u | tr '\n' ' '
}
codes=$(targets_of 75,80,90,100,120)
[ "$codes" = "code=[sm_75,sm_80] code=[sm_90,compute_90] " ] || fail "of the default targets: $codes"
grep -q "does not know compute capability 120: made for 90" "$folder/said" || fail "nothing was said of 120"
codes=$(targets_of 87)
[ "$codes" = "code=[sm_86,compute_86] " ] || fail "of 87: $codes"
codes=$(targets_of 70)
[ -z "$codes" ] || fail "of 70: $codes"
grep -q "compiles for nothing as old as compute capability 70" "$folder/said" || fail "nothing was said of 70"
