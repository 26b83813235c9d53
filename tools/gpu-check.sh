#!/usr/bin/env bash
# gpu-check.sh: everything about GPUs that needs one, in one command: the build for this GPU, every GPU test, the kernels
# under compute-sanitizer, the benchmarks on one GPU and on the host's cores, benchmarks with the table last. Needs a
# CUDA toolkit, a compiler, meson, ninja; and Weft's packages, or build-bundle/ (tools/gpu-bundle). Without a GPU it
# builds and says so. Some minutes.
#   --quick   no sanitizers, no cores
# The status is 0 if nothing failed.
set -uo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top" || exit 1
. tools/common.sh

quick=0
for argument; do
    case $argument in
        --quick) quick=1 ;;
        *) echo "usage: tools/gpu-check.sh [--quick]" >&2; exit 2 ;;
    esac
done
build=${WEFT_GPU_BUILD:-build-gpu}
toolkit=${CUDA_HOME:-${CUDA_PATH:-/usr/local/cuda}}
[ -x build-bundle/pkg-config ] && export PKG_CONFIG=$top/build-bundle/pkg-config
# Ranks that are threads of one process need a queue each.
export CUDA_DEVICE_MAX_CONNECTIONS=32
failed=()

target=90
if command -v nvidia-smi >/dev/null; then
    found=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d '. ')
    [[ $found =~ ^[0-9]+$ ]] && target=$found
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv 2>/dev/null
fi

make() {
    configure "$build" --buildtype=release -Dcuda=enabled "-Dtoolkit=$toolkit" "-Dgpu_targets=$target" \
        -Dtests=enabled -Dtools=enabled -Dperf=enabled &&
        ninja -C "$build" gpu tools/weft perf/all_reduce_perf_nccl perf/{all_reduce,all_gather,reduce_scatter,broadcast,reduce,alltoall,gather,scatter,sendrecv,pingpong,alltoallv}_perf
}
run() { "$build/tests/gpu/gpu_test" "$@"; }
perf_of() { timeout 120 "$build/perf/$1_perf" "${@:2}"; }
perf() { perf_of all_reduce "$@"; }
perf_nccl() { NCCL_MULTI_RANK_GPU_ENABLE=1 timeout 120 "$build/perf/all_reduce_perf_nccl" "$@"; }
perf_processes_of() { timeout 120 "$build/tools/weft" run -n "$2" "$build/perf/$1_perf" "${@:3}"; }
perf_processes() { perf_processes_of all_reduce "$@"; }
# One rank a core, as many as there are.
perf_cores() { timeout 120 "$build/tools/weft" run -n "$1" --bind core "$build/perf/all_reduce_perf" --stat median-max --sizes 8,4K,64K,1M,16M,64M,256M; }

stage "build for sm_$target in $build/" make || exit 1
"$build/tests/gpu/gpu_present"
case $? in
    0) ;;
    77) print_stages; exit 0 ;;
    *) exit 1 ;;
esac
stage "tests" run || failed+=("tests")
if [ "$quick" = 0 ]; then
    if [ -x "$toolkit/bin/compute-sanitizer" ]; then
        export WEFT_TEST_SMALL=1
        for tool in memcheck racecheck; do
            stage "$tool" timeout 100 "$toolkit/bin/compute-sanitizer" --tool "$tool" --error-exitcode 1 --print-limit 20 \
                "$build/tests/gpu/gpu_test" "virtual ranks in one grid give the bits of rank order" || failed+=("$tool")
        done
        unset WEFT_TEST_SMALL
    else
        echo "no sanitizer runs: $toolkit/bin/compute-sanitizer is not there"
    fi
fi
ranks=(-g 1 --ranks-per-gpu 4 -b 8 -e 256M -f 8 --show algo)
stage "all-reduce, 4 threads on one GPU" perf "${ranks[@]}" || failed+=("all_reduce_perf, threads")
for algo in ring double_binary_tree halving_doubling; do
    WEFT_ALGO=$algo stage "the same by $algo" perf "${ranks[@]}" -n 5 || failed+=("all_reduce_perf, $algo")
done
stage "the same as graphs" perf "${ranks[@]}" -G 20 || failed+=("all_reduce_perf, graphs")
stage "the same as processes, which share the GPU by time" perf_processes 4 "${ranks[@]}" -n 5 || failed+=("all_reduce_perf, processes")
stage "their buffers registered" perf_processes 4 "${ranks[@]}" -n 5 -R 1 || failed+=("all_reduce_perf, registered")
# Without shared memory every process is a host of its own: through pinned memory, the proxy threads and loopback.
for name in all_gather reduce_scatter broadcast reduce alltoall gather scatter sendrecv pingpong alltoallv put; do
    stage "$name, 4 threads on one GPU" perf_of "$name" "${ranks[@]:0:10}" -n 5 || failed+=("${name}_perf, threads")
done
stage "messages as graphs" perf_of sendrecv "${ranks[@]:0:10}" -n 5 -G 5 || failed+=("sendrecv_perf, graphs")
stage "uneven parts as processes, their buffers registered" perf_processes_of alltoallv 4 "${ranks[@]:0:10}" -n 5 -R 1 || failed+=("alltoallv_perf, registered")
stage "puts as graphs" perf_of put "${ranks[@]:0:10}" -n 5 -G 5 || failed+=("put_perf, graphs")
stage "puts as processes" perf_processes_of put 4 "${ranks[@]:0:10}" -n 5 || failed+=("put_perf, processes")
stage "all-gather as processes, their buffers registered" perf_processes_of all_gather 4 "${ranks[@]:0:10}" -n 5 -R 1 || failed+=("all_gather_perf, registered")
export WEFT_TRANSPORTS=tcp
stage "2 made-up hosts on one GPU, as processes" perf_processes 2 -g 1 --ranks-per-gpu 2 -b 8 -e 64M -f 8 -n 5 --show algo || failed+=("2 made-up hosts")
WEFT_ALGO=double_binary_tree stage "3 made-up hosts, by trees" perf_processes 3 -g 1 --ranks-per-gpu 3 -b 8 -e 4M -f 8 -n 5 || failed+=("3 made-up hosts")
stage "2 made-up hosts, as graphs" perf_processes 2 -g 1 --ranks-per-gpu 2 -b 8 -e 64M -f 8 -n 5 -G 5 || failed+=("2 made-up hosts, graphs")
unset WEFT_TRANSPORTS
# NCCL beside, where it is found; it is not Weft's failure if that cannot put ranks on one GPU.
if [ -n "${PERF_NCCL_LIBRARY:-}" ] || [[ $(ldconfig -p) == *libnccl.so.2* ]]; then
    stage "NCCL, 4 threads on one GPU" perf_nccl "${ranks[@]}" || echo "NCCL did not run: see above"
else
    echo "no NCCL: PERF_NCCL_LIBRARY may name a libnccl.so.2 to compare with"
fi
if [ "$quick" = 0 ]; then
    for count in 4 8 16; do
        [ "$count" -gt "$(nproc)" ] || stage "all-reduce on $count cores" perf_cores "$count" || failed+=("$count cores")
    done
fi
stage "benchmarks" run "[bench]" || failed+=("benchmarks")
print_stages
[ "${#failed[@]}" = 0 ] && echo "gpu-check: nothing failed" && exit 0
echo "gpu-check: failed: ${failed[*]}"
exit 1
