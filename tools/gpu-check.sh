#!/usr/bin/env bash
# gpu-check.sh: everything about GPUs that needs one, in one command: the build for this GPU, every GPU test, the
# benchmarks of kernels and of whole calls, on one GPU and on all of several, the kernels under compute-sanitizer, benchmarks on
# the host's cores; last a table of results beside their goals. Needs a CUDA toolkit (that of tools/cuda-toolkit does, but for
# the sanitizer), a compiler, meson, ninja; and Weft's packages, or build-bundle/ (tools/gpu-bundle). Without a GPU it builds and says so. Eight minutes at most, of which the build is a part: run again,
# it takes up what was built. What there was no time for is named.
#   --quick      no sanitizers, no cores
#   --no-build   with the programs in $WEFT_GPU_BUILD (build-gpu) as they are
# WEFT_GPU_BUDGET_S: seconds in the eight minutes' place. With WEFT_TEST_SMALL=1 messages are short, to try this script
# itself (tests/gpu). The status is 0 if all was run and nothing failed.
set -uo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top" || exit 1
. tools/common.sh

quick=0 make=1
for argument; do
    case $argument in
        --quick) quick=1 ;;
        --no-build) make=0 ;;
        *) echo "usage: tools/gpu-check.sh [--quick] [--no-build]" >&2; exit 2 ;;
    esac
done
build=${WEFT_GPU_BUILD:-build-gpu}
budget_s=${WEFT_GPU_BUDGET_S:-480}
export -n WEFT_GPU_BUILD WEFT_GPU_BUDGET_S  # no options of Weft's, which would say so
toolkit=${CUDA_HOME:-${CUDA_PATH:-/usr/local/cuda}}
# What quickstart has fetched serves where there is no other.
has_compiler "$toolkit" || ! [ -e build-toolkit/complete ] || toolkit=$(tools/cuda-toolkit)
[ -x build-bundle/pkg-config ] && export PKG_CONFIG=$top/build-bundle/pkg-config
# Ranks that are threads of one process need a queue each.
export CUDA_DEVICE_MAX_CONNECTIONS=32
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
log=$folder/log  # what the last stage said
results=()       # "what|value|goal|met"
failed=()
left_out=()

target=$(gpus_here)
target=${target:-90}
if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv 2>/dev/null
fi

# Each but pingpong in four threads, further below.
collectives=(all_gather reduce_scatter broadcast reduce alltoall gather scatter sendrecv pingpong alltoallv put)
build_all() {
    local programs=("${collectives[@]/#/perf/}")
    configure "$build" --buildtype=release -Dcuda=enabled "-Dtoolkit=$toolkit" "-Dgpu_targets=$target" \
        -Dtests=enabled -Dtools=enabled -Dperf=enabled &&
        timeout "$budget_s" ninja -C "$build" gpu tools/weft perf/all_reduce_perf_nccl perf/all_reduce_perf "${programs[@]/%/_perf}"
}

# limited SECONDS COMMAND...: what it says is in the log too.
limited() {
    timeout -k 5 "$1" "${@:2}" 2>&1 | tee "$log"
    local status=${PIPESTATUS[0]}
    [ "$status" != 124 ] || echo "stopped after $1 s"
    return "$status"
}
# check SECONDS NAME COMMAND...: a stage that takes so long at most, less where the budget ends before.
check() {
    local limit=$1 name=$2 left=$((budget_s - SECONDS))
    shift 2
    : >"$log"
    if [ "$left" -lt 3 ]; then
        left_out+=("$name")
        return 75
    fi
    local status=0
    stage "$name" limited "$((limit < left ? limit : left))" "$@" || status=$?
    case $status in
        0) ;;
        124 | 137) failed+=("$name (stopped)") ;;
        *) failed+=("$name") ;;
    esac
    return "$status"
}
# result_of_check STATUS WHAT: a row of what shall be without an error.
result_of_check() {
    case $1 in
        0) result "$2" "passed" "no error" met ;;
        75) result "$2" "not run" "no error" ;;
        *) result "$2" "failed" "no error" missed ;;
    esac
}
# says WORDS NAME: a stage that shall have said so.
says() { grep -q "$1" "$log" || failed+=("$2: it does not say \`$1\`"); }
perf_of() { echo "$build/perf/$1_perf"; }
# check_perf NAME OPTIONS...: all-reduce by threads. Of processes: check_processes COUNT NAME OPTIONS...
check_perf() { check 60 "$1" "$(perf_of all_reduce)" "${@:2}"; }
check_processes() { check 60 "$2" "$build/tools/weft" run -n "$1" "$(perf_of all_reduce)" "${@:3}"; }

# result WHAT VALUE [GOAL MET]
result() { results+=("$1|$2|${3:-}|${4:-}"); }
# Out of place, of the first and the last size. A rank of all_reduce reads and writes the message once; ranks: those that
# share a GPU, 0: none do.
copy_gbs=0
result_of_perf() {
    local value
    value=$(awk -v ranks="$2" -v copy="$copy_gbs" '
        function size(bytes) { return bytes >= 2^20 ? bytes / 2^20 " MiB" : bytes >= 1024 ? bytes / 1024 " KiB" : bytes " B" }
        $1 ~ /^[0-9]+$/ && NF > 8 { if (!first) first = size($1) " " $6 " us"; bytes = $1; us = $6 }
        END {
            if (!first) exit
            printf "%s, %s %s us", first, size(bytes), us
            if (ranks > 0 && copy > 0 && us > 0) printf ", %.0f %% of the copy", 100 * 2 * ranks * bytes / us / 1e3 / copy
        }' "$log")
    result "$1" "${value:-none}"
}

if [ "$make" = 1 ]; then
    stage "build for sm_$target in $build/" build_all || exit 1
fi
"$build/tests/gpu/gpu_present"
case $? in
    0) ;;
    77) print_stages; exit 0 ;;
    *) exit 1 ;;
esac

# What this machine is, as Weft sees it: for whoever reads the log of another's.
check 30 "weft info" "$build/tools/weft" info
gpus=$(grep -c '^  device [0-9]' "$log")
check 150 "tests" "$build/tests/gpu/gpu_test"
result_of_check $? "100,000 calls of 5,000 random kinds, and the others"
check 120 "benchmarks of kernels" "$build/tests/gpu/gpu_test" "[bench]"
while IFS='|' read -r what value goal met; do result "$what" "$value" "$goal" "$met"; done < <(sed -n 's/^result: //p' "$log")
copy_gbs=$(sed -n 's/.*device copy \([0-9]*\) GB.*/\1/p' "$log")

most=256M least_n=5 host_sizes=8,4K,64K,1M,16M,64M,256M
[ -z "${WEFT_TEST_SMALL:-}" ] || { most=4K least_n=1 host_sizes=8,4K; }
ranks=(-g 1 --ranks-per-gpu 4 -b 8 -e "$most" -f 8)
few=("${ranks[@]}" -n "$least_n")
in_turn=(-n "$((4 * least_n))")
check_perf "all-reduce, 4 threads on one GPU" "${ranks[@]}" "${in_turn[@]}" --show algo
result_of_perf "all_reduce_perf, 4 threads on one GPU" 4
check_perf "the same as graphs" "${ranks[@]}" "${in_turn[@]}" -G "$((4 * least_n))"
result_of_perf "the same as graphs" 4
check_processes 4 "the same as processes, which share the GPU by time" "${few[@]}" --show algo
result_of_perf "4 processes, which share the GPU by time" 4
check_processes 4 "their buffers registered (cuIpc)" "${few[@]}" --show algo -R 1 --plain-memory
result_of_perf "4 processes, registered" 4
pair=(-g 1 --ranks-per-gpu 2 -b 8 -e "$most" -f 8 -n "$least_n")
check_processes 2 "2 processes, each in the other's memory by cuIpc" "${pair[@]}" -R 1 --plain-memory
result_of_perf "2 processes, registered (cuIpc)" 2
check_processes 2 "2 processes, each in the other's memory by descriptors (weftMemAllocDevice)" "${pair[@]}" -R 1
result_of_perf "2 processes, registered (descriptors)" 2
# Each on a GPU of its own, over whatever links them.
if [ "$gpus" -gt 1 ]; then
    all=(-b 8 -e "$most" -f 8 -n "$least_n")
    check_perf "all-reduce, $gpus GPUs as threads" -g "$gpus" "${all[@]}" --show algo
    result_of_perf "$gpus GPUs as threads" 0
    check_perf "$gpus GPUs as threads, as graphs" -g "$gpus" "${all[@]}" -G "$least_n"
    result_of_perf "$gpus GPUs as threads, as graphs" 0
    check_processes "$gpus" "$gpus GPUs as processes" -g 1 "${all[@]}" --show algo
    result_of_perf "$gpus GPUs as processes" 0
    check_processes "$gpus" "$gpus GPUs as processes, registered" -g 1 "${all[@]}" --show algo -R 1
    result_of_perf "$gpus GPUs as processes, registered" 0
    check_processes "$gpus" "$gpus GPUs as processes, registered, as graphs" -g 1 "${all[@]}" -R 1 -G "$least_n"
    for name in all_gather reduce_scatter broadcast alltoall sendrecv; do
        check 40 "$name, $gpus GPUs as threads" "$(perf_of "$name")" -g "$gpus" "${all[@]}"
        check 40 "$name, $gpus GPUs as processes, registered" "$build/tools/weft" run -n "$gpus" "$(perf_of "$name")" -g 1 "${all[@]}" -R 1
    done
else
    result "several GPUs" "not tried: there is one here"
fi
# NCCL beside, where it is found; it is not Weft's failure if that cannot put ranks on one GPU: releases before 2.30 cannot.
nccl_version() {
    python3 - "${PERF_NCCL_LIBRARY:-libnccl.so.2}" <<'TEXT'
import ctypes, sys
version = ctypes.c_int()
if ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(version)) == 0:
    print(version.value)  # 23004: 2.30.4
TEXT
}
nccl=
if [ -n "${PERF_NCCL_LIBRARY:-}" ] || [[ $(ldconfig -p) == *libnccl.so.2* ]]; then nccl=$(nccl_version 2>"$log") || nccl=; fi
if [[ $nccl =~ ^[0-9]+$ ]] && [ "$nccl" -lt 23000 ]; then
    [ "$nccl" -lt 10000 ] || nccl=$((nccl / 10000)).$((nccl % 10000 / 100)).$((nccl % 100))
    echo "NCCL $nccl is older than 2.30: it puts no two ranks on one GPU"
    result "NCCL, 4 threads on one GPU" "not run: $nccl is older than 2.30"
elif [ -n "${PERF_NCCL_LIBRARY:-}" ] || [[ $(ldconfig -p) == *libnccl.so.2* ]]; then
    : >"$log"
    NCCL_MULTI_RANK_GPU_ENABLE=1 stage "NCCL, 4 threads on one GPU" limited 60 "$build/perf/all_reduce_perf_nccl" "${ranks[@]}" ||
        echo "NCCL did not run: see above"
    result_of_perf "NCCL, 4 threads on one GPU" 4
else
    echo "no NCCL: PERF_NCCL_LIBRARY may name a libnccl.so.2 to compare with"
    result "NCCL, 4 threads on one GPU" "no libnccl.so.2 found"
fi
# Calls of the library's, by programs that use CUDA themselves: wrong buffers and streams, captures, ranks that die.
by_steps="$build/tests/device/real_device_collectives_test"
calls="~[fake]~[refused]~[processes]" processes="[processes]~[fake]" collectives_cases="~[repeats]" repeats=100000
[ -z "${WEFT_TEST_SMALL:-}" ] || calls="[input]~[fake],[graphs]" processes="threads and processes together" collectives_cases="ranks that call different collectives*" repeats=200
if [ -x "$by_steps" ]; then
    WEFT_TEST_SMALL=1 check 60 "calls" "$build/tests/device/real_device_test" "$calls"
    WEFT_TEST_SMALL=1 check 90 "calls of processes" "$build/tests/device/real_device_test" "$processes"
    WEFT_TEST_SMALL=1 check 60 "collectives" "$by_steps" "$collectives_cases"
    WEFT_TEST_CALLS=$repeats check 60 "$repeats calls on streams" "$by_steps" "[repeats]"
    result_of_check $? "$repeats calls of random kinds, of 4 ranks on streams"
else
    result "tests of calls" "not built: $toolkit has no libcuda.so to link with" "the toolkit's lib64/stubs" missed
fi
if [ "$quick" = 0 ]; then
    sanitizer=$toolkit/bin/compute-sanitizer
    [ -x "$sanitizer" ] || sanitizer=$(command -v compute-sanitizer)
    if [ -n "$sanitizer" ]; then
        for tool in memcheck racecheck; do
            WEFT_TEST_SMALL=1 check 90 "$tool" "$sanitizer" --tool "$tool" --error-exitcode 1 --print-limit 20 \
                "$build/tests/gpu/gpu_test" "[sanitizer]"
        done
    else
        result "memcheck, racecheck" "not run: no compute-sanitizer found" "a CUDA toolkit's" missed
    fi
fi
for algo in ring double_binary_tree halving_doubling; do
    WEFT_ALGO=$algo check_perf "all-reduce by $algo" "${few[@]}" --show algo
done
for name in "${collectives[@]}"; do
    check 40 "$name, 4 threads on one GPU" "$(perf_of "$name")" "${few[@]}"
done
check 40 "messages as graphs" "$(perf_of sendrecv)" "${few[@]}" -G "$least_n"
check 40 "uneven parts as processes, their buffers registered" "$build/tools/weft" run -n 4 "$(perf_of alltoallv)" "${few[@]}" -R 1
check 40 "puts as graphs" "$(perf_of put)" "${few[@]}" -G "$least_n"
check 40 "puts as processes" "$build/tools/weft" run -n 4 "$(perf_of put)" "${few[@]}"
check 40 "all-gather as processes, their buffers registered" "$build/tools/weft" run -n 4 "$(perf_of all_gather)" "${few[@]}" -R 1
# The ways that a healthy GPU does not take by itself. Threads reach each other by pointers whatever there is.
[ -n "${WEFT_TEST_SMALL:-}" ] || pair[7]=16M
declare -A way=([descriptors]="mapped by file descriptors" [host]="goes through the host's" [copies]="copied to the host's and back")
for path in descriptors host copies; do
    export WEFT_GPU_PATH=$path
    WEFT_DEBUG=INFO WEFT_DEBUG_SUBSYS=INIT check_processes 2 "2 processes by $path" "${pair[@]}" && says "${way[$path]}" "2 processes by $path"
    result_of_perf "2 processes by WEFT_GPU_PATH=$path" 2
    check 40 "messages of 2 processes by $path" "$build/tools/weft" run -n 2 "$(perf_of sendrecv)" "${pair[@]}"
    [ "$path" = descriptors ] || check_perf "2 threads by $path" "${pair[@]}"
done
unset WEFT_GPU_PATH
# Without shared memory every process is a host of its own: through pinned memory, the proxy threads and loopback.
export WEFT_TRANSPORTS=tcp
[ -n "${WEFT_TEST_SMALL:-}" ] || most=64M
hosts=(-g 1 -b 8 -e "$most" -f 8 -n "$least_n")
check_processes 2 "2 made-up hosts on one GPU, as processes" "${hosts[@]}" --ranks-per-gpu 2 --show algo
check_processes 2 "2 made-up hosts, as graphs" "${hosts[@]}" --ranks-per-gpu 2 -G "$least_n"
[ -n "${WEFT_TEST_SMALL:-}" ] || hosts[5]=4M
WEFT_ALGO=double_binary_tree check_processes 3 "3 made-up hosts, by trees" "${hosts[@]}" --ranks-per-gpu 3
unset WEFT_TRANSPORTS
if [ "$quick" = 0 ]; then
    # One rank a core, as many as there are.
    for count in 4 8 16; do
        [ "$count" -gt "$(nproc)" ] ||
            check 60 "all-reduce on $count cores" "$build/tools/weft" run -n "$count" --bind core "$(perf_of all_reduce)" --stat median-max --sizes "$host_sizes"
    done
fi

print_stages
printf '\nresults, beside the goals that there are:\n'
for each in "${results[@]}"; do
    IFS='|' read -r what value goal met <<<"$each"
    printf '%-52s %-44s %s\n' "$what" "$value" "${goal:+goal: $goal, }$met"
done
for each in "${left_out[@]}"; do echo "left out for want of time: $each"; done
for each in "${failed[@]}"; do echo "failed: $each"; done
[ "${#failed[@]}" = 0 ] || { echo "gpu-check: ${#failed[@]} stages failed"; exit 1; }
[ "${#left_out[@]}" = 0 ] || { echo "gpu-check: nothing failed, but there was no time for ${#left_out[@]} stages: run it again, or set WEFT_GPU_BUDGET_S"; exit 1; }
echo "gpu-check: nothing failed"
