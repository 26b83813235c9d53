#!/usr/bin/env bash
# gpu-check.sh: builds Weft for this machine's GPUs and runs all tests that need one, the most informative first.
# Each result is printed at once. The table below lists the stages in parts; part 1 includes the build.
# Each part ends within 480 s on 16 cores with one GPU (docs/design/gpu-testing.md).
# A stage that has passed is not run again as long as programs and GPUs are the same.
# Needs a CUDA toolkit, a compiler, Meson and Ninja, and either Weft's packages or build-bundle/ (tools/gpu-bundle).
# Without a GPU it builds and reports that none was found. Options: --help.
set -uo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)

help() {
    cat <<'TEXT'
usage: tools/gpu-check.sh [OPTIONS]
  --part N      1 (unless given), 2, 3 (programs of others on Weft) or all
  --only REGEX  the stages whose names match, of all parts unless --part is given
  --list        prints the stages: name, part, most seconds, seconds about, what they tell
  --fresh       also runs the stages that have passed before
  --no-build    uses the programs in $WEFT_GPU_BUILD (build-gpu) as they are
  --output DIR  appends results to DIR/results.txt, writes each stage's output to DIR/STAGE.log
WEFT_GPU_BUDGET_S: seconds of a run instead of 480.
WEFT_TEST_SMALL=1: short messages and no limits but the budget, to try this script (tests/gpu).
WEFT_TEST_TORCH_PYTHON: a Python with torch for CUDA and nanobind, for the stage torch (python3).
WEFT_TEST_NCCL_TESTS: a folder with the sources of NVIDIA's nccl-tests, which the stage nccl-tests compiles and runs.
The status is 0 if every stage asked for has passed or does not apply to this machine.
TEXT
}
usage() {
    help >&2
    exit 2
}
part='' only='' list=0 fresh=0 make=1 output=''
while [ $# -gt 0 ]; do
    case $1 in
        --part | --only | --output) [ $# -gt 1 ] || usage ;;&
        --part) part=$2; shift ;;
        --only) only=$2; shift ;;
        --output) output=$2; shift ;;
        --list) list=1 ;;
        --fresh) fresh=1 ;;
        --no-build) make=0 ;;
        --help | -h) help; exit ;;
        *) usage ;;
    esac
    shift
done
if [ -z "$part" ]; then
    part=1
    [ -z "$only" ] && [ "$list" = 0 ] || part=all
fi
case $part in 1 | 2 | 3 | all) ;; *) usage ;; esac
[[ '' =~ $only ]] || [ $? = 1 ] || usage  # not a regular expression
if [ -n "$output" ]; then
    mkdir -p "$output" && output=$(cd "$output" && pwd) || exit 1
fi
cd "$top" || exit 1
. tools/common.sh

build=${WEFT_GPU_BUILD:-build-gpu}
budget_s=${WEFT_GPU_BUDGET_S:-480}
small=${WEFT_TEST_SMALL:-}
export -n WEFT_GPU_BUILD WEFT_GPU_BUDGET_S  # Weft would warn of unknown options
toolkit=${CUDA_HOME:-${CUDA_PATH:-/usr/local/cuda}}

# The stages: name, part, maximum seconds, usual seconds, function and arguments # the subject of the result.
# Sizes: 8,64K is a list; 8..256M goes up in steps of a factor of 8. The smallest size has an element for each rank.
plan() {
    cat <<'TABLE'
copy                         1  30  2  gpu_test [copy]                                # the speed of a device copy
smoke-all-reduce             1  30  2  threads all_reduce 8,64K,1M,5M,16M -n 1 --show algo   # all-reduce by packets
smoke-peer-memory            1  30  2  with WEFT_GPU_PACKET_BYTES=64K threads all_reduce 1M -n 1 --show algo  # all-reduce in peers' memory
smoke-all-gather             1  30  2  threads all_gather 64,1M -n 1 --show algo      # all-gather, packets and peers' memory
smoke-steps                  1  30  2  with WEFT_ALGO=ring threads all_reduce 64K,1M -n 1 --show algo  # all-reduce by the step machine
smoke-messages               1  30  2  threads sendrecv 8,1M -n 1                     # messages
smoke-uneven                 1  30  2  threads alltoallv 64,1M -n 1                   # uneven parts
smoke-put                    1  30  2  threads put 8,1M -n 1                          # puts and signals
smoke-latency                1  30  3  threads all_reduce 8 -n 2000                   # all-reduce of 8 B
smoke-graph                  1  30  3  threads all_reduce 8 -n 100 -G 20              # all-reduce of 8 B in graphs
smoke-bandwidth              1  30  3  threads all_reduce 256M -n 10                  # all-reduce of 256 MiB
processes-registered         1  60  8  processes 2 all_reduce 8,1M,256M -n 5 -R 1 --plain-memory  # registered buffers (cuIpc)
processes-staged             1  60  6  processes 2 all_reduce 8,1M,64M -n 3           # buffers that are not registered
processes-descriptors        1  60  8  processes 2 all_reduce 8,1M,256M -n 5 -R 1     # weftMemAlloc (descriptors)
gpus-threads                 1  60  8  gpus_threads all_reduce 8..256M -n 20 --show algo  # all-reduce
gpus-registered              1  60  8  registered gpus_processes all_reduce 8..256M -n 20 --show algo -R 1  # all-reduce, registered
gpus-processes               1  60  8  gpus_processes all_reduce 8..256M -n 20 --show algo  # all-reduce
gpus-peer-memory             1  60  8  with WEFT_GPU_PACKET_BYTES=64K registered gpus_processes all_reduce 256K,512K,1M,4M,16M,32M,64M -n 20 -R 1  # all-reduce in peers' memory, registered
gpus-staged                  1  60  8  with WEFT_GPU_PACKET_BYTES=64K gpus_processes all_reduce 256K,512K,1M,4M,16M,32M,64M -n 20  # all-reduce through staging memory
gpus-graphs                  1  60  8  gpus_threads all_reduce 8..256M -n 20 -G 5     # all-reduce in graphs
gpus-registered-graphs       1  60  8  registered gpus_processes all_reduce 8..256M -n 20 -G 5 -R 1  # all-reduce in graphs, registered
gpus-engines                 1  60  8  by_engines gpus_processes all_gather 1M,32M,256M -n 20 -R 1  # all-gather by copy engines
gpus-multicast               1  60  8  by_switch staged gpus_processes all_reduce 64K,512K,1M,4M,32M,256M -n 20 --show algo  # all-reduce by the switch
gpus-multicast-registered    1  60  8  by_switch buffer gpus_processes all_reduce 64K,512K,1M,4M,32M,256M -n 20 --show algo  # all-reduce by the switch
gpus-multicast-windows       1  60  8  by_switch window gpus_processes all_reduce 64K,512K,1M,4M,32M,256M -n 20 --show algo  # all-reduce by the switch
gpus-multicast-windows-graphs 1 60  8  by_switch window gpus_processes all_reduce 64K,512K,1M,4M,32M,256M -n 20 -G 5  # all-reduce by the switch in graphs
gpus-multicast-integers      1  60  8  by_switch window gpus_processes all_reduce 64K,1M,32M -n 20 -d int32  # all-reduce of int32 by the switch
gpus-without-multicast       1  60  8  with WEFT_GPU_MULTICAST=0 registered gpus_processes all_reduce 64K,512K,1M,4M,32M,256M -n 20 -R 1  # all-reduce without the switch, registered
gpus-multicast-gather        1  60  8  by_switch staged gpus_processes all_gather 1M,32M,256M -n 20 --show algo  # all-gather by the switch
gpus-multicast-scatter       1  60  8  by_switch staged gpus_processes reduce_scatter 1M,32M,256M -n 20 --show algo  # reduce-scatter by the switch
calls                        1  90 40  driver_test device_test ~[fake]~[refused]~[processes]  # streams, captures, groups, failures, of threads
collectives                  1  90 40  driver_test device_collectives_test ~[repeats] # every collective, type and reduction
calls-of-processes           1 120 70  driver_test device_test [processes]~[fake]     # streams, captures, groups, failures, of processes
crossing                     1  60  5  with WEFT_GPU_BLOCKS=8 driver_test device_crossing_test [room]~[fake],[ordered]~[fake]  # communicators that overlap, in crossing order
queues                       1  60  5  with WEFT_GPU_BLOCKS=8 CUDA_DEVICE_MAX_CONNECTIONS=1 driver_test device_crossing_test [queues]~[fake]  # the same in one hardware queue
gpus-crossing                1  60  4  at_least 4 driver_test device_crossing_test [four]        # four communicators of four GPUs, in crossing order
kernels                      1  60 12  gpu_test [brief]                               # kernels against the device copy, 8 ranks
repeats                      1  90 10  repeats 100000                                 # 100,000 calls of random kinds on the streams of 4 ranks
memcheck                     1  90 25  sanitizer memcheck tests/gpu/gpu_test [sanitizer]   # addresses that kernels must not touch
synccheck                    1  90 15  sanitizer synccheck tests/gpu/gpu_test [sanitizer]  # barriers that threads of a block miss
initcheck                    1  90 20  sanitizer initcheck tests/gpu/gpu_test [sanitizer]  # device memory that is read before it is written
racecheck                    1  60  8  sanitizer racecheck perf/sendrecv_perf -g 1 --sizes 64K,1M -n 1  # races in shared memory: messages of a rank to itself
bits                         1  90 10  with WEFT_TEST_SMALL=1 gpu_test                # every kernel, type and reduction, a sample
nccl                         1  60  8  nccl                                           # NCCL beside Weft
drop-in                      1  60  5  drop_in 8,1M,256M -n 20                        # all-reduce through Weft's libnccl.so.2
cores-4                      1  60  6  cores 4                                        # all-reduce in host memory
cores-8                      1  60  6  cores 8                                        # all-reduce in host memory
cores-16                     1  60  8  cores 16                                       # all-reduce in host memory
bits-all                     2 150 45  gpu_test                                       # every kernel, type and reduction; 100,000 calls in one grid
kernels-all                  2 150 70  gpu_test [bench]                               # kernels of 2, 4 and 8 ranks, all sizes
threads                      2  60  8  threads all_reduce 8..256M -n 20 --show algo   # all-reduce, all sizes
threads-graphs               2  60  8  threads all_reduce 8..256M -n 20 -G 20         # all-reduce in graphs, all sizes
threads-ring                 2  60  5  with WEFT_ALGO=ring threads all_reduce 8..256M -n 5 --show algo  # all-reduce, ring
threads-tree                 2  60  5  with WEFT_ALGO=double_binary_tree threads all_reduce 8..256M -n 5 --show algo  # all-reduce, double binary tree
threads-halving              2  60  5  with WEFT_ALGO=halving_doubling threads all_reduce 8..256M -n 5 --show algo  # all-reduce, halving-doubling
all_gather                   2  60  4  threads all_gather 64..256M -n 5               # all-gather
reduce_scatter               2  60  4  threads reduce_scatter 64..256M -n 5           # reduce-scatter
broadcast                    2  60  4  threads broadcast 8..256M -n 5                 # broadcast
reduce                       2  60  4  threads reduce 8..256M -n 5                    # reduce
alltoall                     2  60  4  threads alltoall 64..256M -n 5                 # all-to-all
gather                       2  60  4  threads gather 64..256M -n 5                   # gather
scatter                      2  60  4  threads scatter 64..256M -n 5                  # scatter
sendrecv                     2  60  4  threads sendrecv 8..256M -n 5                  # messages around a ring
pingpong                     2  60  4  threads pingpong 8..256M -n 5                  # a message there and back
alltoallv                    2  60  4  threads alltoallv 64..256M -n 5                # all-to-all of uneven parts
put                          2  60  4  threads put 8..256M -n 5                       # puts
sendrecv-graphs              2  60  4  threads sendrecv 8..256M -n 5 -G 5             # messages in graphs
put-graphs                   2  60  4  threads put 8..256M -n 5 -G 5                  # puts in graphs
processes-4                  2  60 10  processes 4 all_reduce 8,16M -n 5 --show algo  # time slices
processes-4-registered       2  60 10  processes 4 all_reduce 8,16M -n 5 --show algo -R 1 --plain-memory  # time slices, registered
processes-uneven             2  60  8  processes 4 alltoallv 64,16M -n 5 -R 1         # uneven parts, registered
processes-put                2  60  8  processes 4 put 8,16M -n 5                     # puts
processes-gather             2  60  8  processes 4 all_gather 64,16M -n 5 -R 1        # all-gather, registered
processes-engines            2  60  8  by_engines processes 2 all_gather 64,16M -n 5 -R 1  # all-gather by copy engines
path-descriptors             2  60  6  by_path descriptors                            # WEFT_GPU_PATH=descriptors
path-descriptors-messages    2  60  5  with WEFT_GPU_PATH=descriptors processes 2 sendrecv 8,16M -n 5  # WEFT_GPU_PATH=descriptors, messages
path-host                    2  60  6  by_path host                                   # WEFT_GPU_PATH=host
path-host-messages           2  60  5  with WEFT_GPU_PATH=host processes 2 sendrecv 8,16M -n 5  # WEFT_GPU_PATH=host, messages
path-host-threads            2  60  4  with WEFT_GPU_PATH=host threads all_reduce 8,16M -n 5  # WEFT_GPU_PATH=host
path-copies                  2  60  6  by_path copies                                 # WEFT_GPU_PATH=copies
path-copies-messages         2  60  5  with WEFT_GPU_PATH=copies processes 2 sendrecv 8,16M -n 5  # WEFT_GPU_PATH=copies, messages
path-copies-threads          2  60  4  with WEFT_GPU_PATH=copies threads all_reduce 8,16M -n 5  # WEFT_GPU_PATH=copies
hosts-2                      2  60  8  with WEFT_TRANSPORTS=tcp processes 2 all_reduce 8,64K,64M -n 5 --show algo  # made-up hosts over loopback
hosts-2-graphs               2  60  8  with WEFT_TRANSPORTS=tcp processes 2 all_reduce 8,64K,64M -n 5 -G 5  # made-up hosts, graphs
hosts-3-tree                 2  60 10  with WEFT_TRANSPORTS=tcp WEFT_ALGO=double_binary_tree processes 3 all_reduce 8,64K,4M -n 5  # made-up hosts, trees
drop-in-graphs               2  60  5  drop_in 8,1M,256M -n 20 -G 20                  # all-reduce through Weft's libnccl.so.2, in graphs
drop-in-registered           2  60  5  drop_in 8,1M,256M -n 20 -R 1                   # all-reduce through Weft's libnccl.so.2, registered
nccl-tests                   3 200 60  nccl_tests                                     # nccl-tests' programs on Weft's libnccl.so.2
torch                        3 300 95  torch_tests                                    # the backend of torch.distributed, tensors of CUDA devices
gpus-multicast-half          2  60 10  by_switch staged,window gpus_processes all_reduce 64K,1M,32M -n 20 -d half  # all-reduce of float16 by the switch
gpus-multicast-bfloat16      2  60 10  by_switch staged,window gpus_processes all_reduce 64K,1M,32M -n 20 -d bfloat16  # all-reduce of bfloat16 by the switch
gpus-multicast-double        2  60 10  by_switch staged,window gpus_processes all_reduce 64K,1M,32M -n 20 -d double  # all-reduce of float64 by the switch
gpus-multicast-fp8           2  60 10  capability 10 by_switch staged,window gpus_processes all_reduce 64K,1M,32M -n 20 -d f8e4m3  # all-reduce of fp8 by the switch
gpus-multicast-max           2  60  8  by_switch window gpus_processes all_reduce 64K,1M,32M -n 20 -d int64 -o max  # maxima of int64 by the switch
gpus-all_gather              2  60  6  gpus_threads all_gather 64..256M -n 20         # all-gather
gpus-reduce_scatter          2  60  6  gpus_threads reduce_scatter 64..256M -n 20     # reduce-scatter
gpus-broadcast               2  60  6  gpus_threads broadcast 8..256M -n 20           # broadcast
gpus-alltoall                2  60  6  gpus_threads alltoall 64..256M -n 20           # all-to-all
gpus-sendrecv                2  60  6  gpus_threads sendrecv 8..256M -n 20            # messages around a ring
gpus-all_gather-registered   2  60  6  registered gpus_processes all_gather 64..256M -n 20 -R 1  # all-gather, registered
gpus-reduce_scatter-registered  2  60  6  registered gpus_processes reduce_scatter 64..256M -n 20 -R 1  # reduce-scatter, registered
gpus-broadcast-registered    2  60  6  registered gpus_processes broadcast 8..256M -n 20 -R 1    # broadcast, registered
gpus-alltoall-registered     2  60  6  registered gpus_processes alltoall 64..256M -n 20 -R 1    # all-to-all, registered
gpus-sendrecv-registered     2  60  6  registered gpus_processes sendrecv 8..256M -n 20 -R 1     # messages around a ring, registered
TABLE
}
perf_programs=(perf/{all_reduce,all_gather,reduce_scatter,broadcast,reduce,alltoall,gather,scatter,sendrecv,pingpong,alltoallv,put}_perf)

# selected: the rows of the plan that --part and --only select.
selected() {
    local name of rest
    while read -r name of rest; do
        if [[ $part = all || $part = "$of" ]] && [[ $name =~ $only ]]; then echo "$name $of $rest"; fi
    done < <(plan)
}
if [ -z "$(selected)" ]; then
    echo "gpu-check: no stage (--part $part) matches '$only': see --list" >&2
    exit 2
fi
if [ "$list" = 1 ]; then
    table=$(
        echo "stage                          part  at most  about  what it tells"
        while read -r name of most about call; do
            printf '%-30s %4s %8s %6s  %s\n' "$name" "$of" "$most" "$about" "${call#*\# }"
        done < <(selected)
    )
    printf '%s\n' "$table" || exit 1  # on a full disk, for instance
    exit 0
fi

# If there is no other toolkit, the one that quickstart has installed serves.
has_compiler "$toolkit" || ! [ -e build-toolkit/complete ] || toolkit=$(tools/cuda-toolkit)
[ -x build-bundle/pkg-config ] && export PKG_CONFIG=$top/build-bundle/pkg-config
# Each rank that is a thread of the process needs its own hardware queue.
export CUDA_DEVICE_MAX_CONNECTIONS=32
folder=$(mktemp -d) || exit 1
logs=${output:-$folder}
table=$folder/results  # of this run
: >"$table"
failed=() left_out=()
child='' current=''  # the running command and the running stage
gpus=0

# say LINES: prints lines of the table.
say() {
    printf '%s\n' "$1" | tee -a "$table"
    [ -z "$output" ] || printf '%s\n' "$1" >>"$output/results.txt"
}

# Prints the table and the missing stages. The last line is the verdict.
finish() {
    printf '\nresults, in the order of the stages:\n'
    cat "$table"
    echo "$SECONDS s in all"
    local each last='nothing failed' result=0
    for each in "${left_out[@]}"; do echo "left out: $each"; done
    for each in "${failed[@]}"; do echo "failed: $each"; done
    if [ "${#failed[@]}" -gt 0 ]; then
        result=1 last="${#failed[@]} stages failed"
    elif [ "${#left_out[@]}" -gt 0 ]; then
        result=1 last="nothing failed, but ${#left_out[@]} stages are left out: run it again, what has passed is skipped"
    fi
    say "gpu-check: $last"
    return "$result"
}
interrupted() {
    [ -z "$child" ] || kill "$child" 2>/dev/null
    [ -z "$current" ] || { say "$current: interrupted"; left_out+=("$current"); }
    finish
    exit 1
}
trap interrupted INT TERM
trap 'rm -rf "$folder"' EXIT

# ---- Passed stages: a file with the key of programs and GPUs, then blocks of the table.
passed=$build/gpu-check.passed
passed_key() {
    local file
    {
        # The GPUs, without their serial numbers.
        grep -oE '^  (CUDA driver|device [0-9]+) +[^,]*' "$logs/machine.log"
        nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null
        echo "$(nproc) cores, small: $small"
        for file in tools/{gpu-check,common}.sh "$build"/libweft.so "$build"/src/nccl/libnccl.so.2 "$build"/tools/weft "$build"/perf/*_perf{,_nccl} "$build"/tests/gpu/{gpu_test,*.fatbin} "$build"/tests/device/real_device_*; do
            [ ! -f "$file" ] || cat "$file"
        done
    } | sha256sum | cut -d ' ' -f 1
}
# block NAME [not]: prints the lines of the block, or of all others.
block() {
    [ ! -f "$passed" ] || awk -v name="$1:" -v others="${2:+1}" '/^[^ ]/ { mine = $1 == name } mine != (others == 1)' "$passed"
}
remember() {
    [ -f "$passed" ] || return 0
    block "$1" not >"$passed.new" && printf '%s\n' "$rows" >>"$passed.new" && mv "$passed.new" "$passed"
}

# ---- Functions of stages.
# result WHAT VALUE [GOAL MET]: adds a row below that of the stage.
result() { rows+=$'\n'$(printf '  %-62s %-32s %s' "$1" "$2" "${3:+goal: $3, }${4:-}" | sed 's/ *$//'); }
# not_here REASON: this machine lacks something that the stage needs.
not_here() {
    reason=$1
    return 77
}
# run COMMAND...: runs it within the rest of the stage's time.
run() {
    local left=$((deadline - SECONDS)) status=0
    [ "$left" -gt 0 ] || return 124
    # In the background, so that the shell handles signals at once.
    # Output goes to a file, so that the shell does not wait for an orphan that holds a pipe.
    timeout -k 3 "$left" "$@" >>"$log" 2>&1 &
    child=$!
    wait "$child" || status=$?
    child=
    return "$status"
}
# run_cases COMMAND...: for Catch2, which succeeds if a filter matches no test.
run_cases() {
    run "$@" || return
    ! grep -qE '^No test' "$log"
}
# with VARIABLE=VALUE... COMMAND...
with() {
    while [[ $1 == *=* ]]; do
        local -x "${1?}"
        shift
    done
    "$@"
}
# arguments_of SIZES OPTIONS...: fills `arguments`.
arguments_of() {
    local sizes=$1 option previous=''
    shift
    [ -z "$small" ] || case $sizes in *[,.]*) sizes=${sizes%%[,.]*},4K ;; 8) ;; *) sizes=4K ;; esac
    case $sizes in
        *..*) arguments=(-b "${sizes%..*}" -e "${sizes#*..}" -f 8) ;;
        *) arguments=(--sizes "$sizes") ;;
    esac
    for option; do
        case $previous in -n | -G) [ -z "$small" ] || option=1 ;; esac
        arguments+=("$option")
        previous=$option
    done
}
# A hanging rank fails its call before the stage's limit, and the message names the missing peer.
patience() { [ -n "$small" ] || arguments+=(-T 20); }
perf_of() { echo "$build/perf/$1_perf"; }
# threads PROGRAM SIZES OPTIONS...: 4 ranks of one process on one GPU. The functions below have the same form.
threads() {
    local arguments
    arguments_of "${@:2}"
    patience
    run "$(perf_of "$1")" -g 1 --ranks-per-gpu 4 "${arguments[@]}" && result_of_perf "$title, 4 threads on one GPU" 4 "$1"
}
processes() {
    local arguments
    arguments_of "${@:3}"
    patience
    run "$build/tools/weft" run -n "$1" "$(perf_of "$2")" -g 1 --ranks-per-gpu "$1" "${arguments[@]}" &&
        result_of_perf "$title, $1 processes on one GPU" "$1" "$2"
}
gpus_threads() {
    local arguments
    arguments_of "${@:2}"
    patience
    run "$(perf_of "$1")" -g "$gpus" "${arguments[@]}" && result_of_perf "$title, $gpus GPUs as threads"
}
gpus_processes() {
    local arguments
    arguments_of "${@:2}"
    patience
    run "$build/tools/weft" run -n "$gpus" "$(perf_of "$1")" -g 1 "${arguments[@]}" && result_of_perf "$title, $gpus GPUs as processes"
}
# result_of_perf WHAT [RANKS PROGRAM]: the results out of place, of the first and the last size.
# RANKS is the number of ranks that share a GPU.
# Each rank of an all-reduce reads and writes the message once, as a copy does: the row compares both.
result_of_perf() {
    local value copy=0
    [ "${3:-}" != all_reduce ] || copy=$(sed -n 's/^  device copy, read and written *\([0-9]*\) GB.*/\1/p' "$table" | tail -n 1)
    value=$(awk -v ranks="${2:-0}" -v copy="${copy:-0}" '
        function size(bytes) { return bytes >= 2^20 ? bytes / 2^20 " MiB" : bytes >= 1024 ? bytes / 1024 " KiB" : bytes " B" }
        # If the program runs several times, the last run counts.
        /Collective test starting/ { first = "" }
        $1 ~ /^[0-9]+$/ && NF > 8 { last = size($1) " " $6 " us"; bytes = $1; us = $6; if (!first) first = last }
        END {
            if (!first) exit
            printf "%s", first == last ? first : first ", " last
            if (ranks > 0 && copy > 0 && us > 0 && bytes >= 2^20) printf ", %.0f %% of the copy", 100 * 2 * ranks * bytes / us / 1e3 / copy
        }' "$log")
    result "$1" "${value:-no time is printed}"
}
# gpu_test [TAG]
gpu_test() {
    local status=0 what value goal met
    # Another test runs all of it on the fake driver.
    [ -z "$small" ] || [ $# -gt 0 ] || set -- "ranks that call different things both say so"
    run_cases "$build/tests/gpu/gpu_test" "$@" || status=$?
    while IFS='|' read -r what value goal met; do result "$what" "$value" "$goal" "$met"; done < <(sed -n 's/^result: //p' "$log")
    return "$status"
}
# Meson makes these programs only if the driver's library exists, because they link it.
driver_test() {
    if [ ! -x "$build/tests/device/real_$1" ] && [ -z "$(find "$toolkit"/lib{64,}/stubs -name libcuda.so 2>/dev/null)" ]; then
        not_here "$toolkit has no stubs/libcuda.so to link with"
        return
    fi
    local filter=$2
    # The small form runs some cases of each program.
    [ -z "$small" ] || case $1/$2 in
        */*"~[processes]") filter="[input]~[fake],[graphs]" ;;
        */"[processes]"*) filter="threads and processes together" ;;
        */"~[repeats]") filter="different collectives or roots*" ;;
    esac
    with WEFT_TEST_SMALL=1 run_cases "$build/tests/device/real_$1" "$filter"
}
# at_least GPUS COMMAND...
at_least() {
    [ "$gpus" -ge "$1" ] || { not_here "there are $gpus GPUs"; return; }
    "${@:2}"
}
repeats() {
    local calls=$1
    [ -z "$small" ] || calls=200
    with "WEFT_TEST_CALLS=$calls" driver_test device_collectives_test "[repeats]"
}
# sanitizer TOOL PROGRAM ARGUMENTS...: the sanitizer runs kernels one at a time, so a kernel must be a whole call.
sanitizer() {
    local program=$toolkit/bin/compute-sanitizer
    [ -x "$program" ] || program=$(command -v compute-sanitizer) || { not_here "no compute-sanitizer was found"; return; }
    with WEFT_TEST_SMALL=1 run_cases "$program" --tool "$1" --error-exitcode 1 --print-limit 20 "$build/$2" "${@:3}"
}
# The log proves which path was used: a time of another path must not stand in the table.
says() { grep -qE "$1" "$log" || { echo "it does not say \`$1\`" >>"$log"; rows=; return 1; }; }
never_says() { ! grep -qE "$1" "$log" || { echo "it says \`$1\`" >>"$log"; rows=; return 1; }; }
# Threads use pointers on every path.
by_path() {
    local -A words=([descriptors]="mapped by file descriptors" [host]="goes through the host's" [copies]="copied to the host's and back")
    with "WEFT_GPU_PATH=$1" WEFT_DEBUG=INFO WEFT_DEBUG_SUBSYS=INIT processes 2 all_reduce 8,64K,16M -n 5 && says "${words[$1]}"
}
# by_switch PLACES COMMAND...: PLACES of the buffers, separated by commas: staged, buffer (registered) or window. Each is
# a run of COMMAND.
by_switch() {
    local place refused subject=$title used="the switch reduces and hands out messages, through"
    local -A options=([buffer]="-R 1" [window]="-R 2") what=([staged]="staged" [buffer]="registered buffers" [window]="symmetric windows")
    for place in ${1//,/ }; do
        local title="$subject, ${what[$place]}"
        # shellcheck disable=SC2086
        with WEFT_GPU_MULTICAST=3 WEFT_DEBUG=INFO WEFT_DEBUG_SUBSYS=INIT,MEM "${@:2}" ${options[$place]:-} || return
        if ! grep -q "$used" "$log"; then
            rows=
            refused=$(sed -n 's/.*the switch does not reduce and hand out messages of device memory: //p' "$log" | head -n 1)
            # A driver says one of these in a virtual machine, or without the fabric manager. Others are failures.
            if [ -z "$refused" ] || [[ $refused =~ SYSTEM_NOT_READY|NOT_SUPPORTED|NOT_PERMITTED ]]; then
                not_here "${refused:-the GPUs have no switch that reduces}"
                return
            fi
            says "$used"
            return
        fi
        [ "$place" != staged ] || continue
        never_says "(cannot|does not) lie behind the switch" || return
        # The small form is too short to wait until a registered buffer lies there.
        [ "$place" = buffer ] && [ -n "$small" ] || says "$place .* lies behind the switch" || return
    done
}
# capability MAJOR COMMAND...: for GPUs of this compute capability alone.
capability() {
    grep -qE "^  device 0 .*sm_$1[0-9]( |,|$)" "$logs/machine.log" || { not_here "no compute capability $1"; return; }
    "${@:2}"
}
# by_engines COMMAND...: a call that copy engines decline says why. In the small form, a loaded machine may map too late.
by_engines() {
    with WEFT_GPU_BLOCK_POLICY=1 WEFT_DEBUG=INFO WEFT_DEBUG_SUBSYS=COLL "$@" || return
    if grep -q "although blockPolicy is zero: .* has no 64-bit stream memory operations" "$log"; then
        rows=
        not_here "no 64-bit stream memory operations"
        return
    fi
    [ -n "$small" ] || never_says "kernels move the data although blockPolicy is zero"
}
# registered COMMAND...: the other processes have mapped the buffers.
registered() {
    with WEFT_DEBUG=INFO WEFT_DEBUG_SUBSYS=MEM "$@" || return
    never_says "cannot map what rank|are not mapped by others|cannot be registered|cannot register"
}
# nccl_run PROGRAM WHAT OPTIONS...: a run with Weft or with NCCL.
nccl_run() {
    local status=0
    : >"$log"
    run "$(perf_of all_reduce)$1" "${@:3}" || status=$?
    cat "$log" >>"$folder/nccl"
    [ "$status" != 0 ] || result_of_perf "$2"
    return "$status"
}
# Compares Weft with NCCL. The stage fails only if Weft fails, which runs first.
# From 2.30 on, NCCL accepts two ranks on one GPU.
nccl() {
    local found version library arguments one what way status=0
    found=$(tools/find_nccl.py 2>"$folder/nccl") || found=
    [ -n "$found" ] || { not_here "no libnccl.so.2 was found: PERF_NCCL_LIBRARY may name one"; return; }
    read -r version library <<<"${found##*$'\n'}"
    arguments_of 8,1M,256M -n 20
    local ways=("1 rank|-g 1")
    if printf '2.30\n%s\n' "$version" | sort -V -C; then
        ways=("4 threads on one GPU|-g 1 --ranks-per-gpu 4")
    else
        result "NCCL $version, 4 threads on one GPU" "not run: older than 2.30"
    fi
    [ "$gpus" -lt 2 ] || ways+=("$gpus GPUs as threads|-g $gpus")
    for way in "${ways[@]}"; do
        what=${way%|*}
        read -ra one <<<"${way#*|}"
        nccl_run "" "Weft, $what" "${one[@]}" "${arguments[@]}" || status=$?
        with "PERF_NCCL_LIBRARY=$library" NCCL_MULTI_RANK_GPU_ENABLE=1 nccl_run _nccl "NCCL $version, $what" "${one[@]}" "${arguments[@]}" ||
            result "NCCL $version, $what" "did not run"
    done
    mv "$folder/nccl" "$log"
    return "$status"
}
# drop_in SIZES OPTIONS...: the benchmark that is a client of NCCL, on this build's libnccl.so.2.
drop_in() {
    local arguments library=$build/src/nccl/libnccl.so.2
    [ -f "$library" ] || { not_here "$library is not built"; return; }
    arguments_of "$@"
    local way="-g 1 --ranks-per-gpu 4"
    [ "$gpus" = 1 ] || way="-g $gpus"
    # shellcheck disable=SC2086
    with "PERF_NCCL_LIBRARY=$library" run "$(perf_of all_reduce)_nccl" $way "${arguments[@]}" && result_of_perf "$title, $way"
}
# nccl-tests' sources in $WEFT_TEST_NCCL_TESTS, compiled against the toolkit's nccl.h and linked with this build's library.
# Each program checks its results; a wrong one fails it.
nccl_tests() {
    local sources=${WEFT_TEST_NCCL_TESTS:-} library=$build/src/nccl/libnccl.so.2 home=$folder/nccl_home name header targets
    [ -f "$sources/src/all_reduce.cu" ] || { not_here "WEFT_TEST_NCCL_TESTS names no folder of nccl-tests"; return; }
    [ -f "$library" ] || { not_here "$library is not built"; return; }
    for header in "$toolkit" /usr /usr/local; do [ ! -f "$header/include/nccl.h" ] || break; done
    [ -f "$header/include/nccl.h" ] || { not_here "there is no nccl.h in $toolkit"; return; }
    mkdir -p "$home/lib" && ln -sfn "$header/include" "$home/include" && ln -sf "$(realpath "$library")" "$home/lib/libnccl.so.2" &&
        ln -sf libnccl.so.2 "$home/lib/libnccl.so" || return
    targets=$(gpus_here)
    run make -C "$sources/src" -j "$(nproc)" "NCCL_HOME=$home" "CUDA_HOME=$toolkit" "BUILDDIR=$(realpath "$build")/nccl-tests" \
        "NVCC_GENCODE=$(sed 's/[^,][^,]*/-gencode=arch=compute_&,code=sm_&/g; s/,-/ -/g' <<<"${targets:-90}")" build || return
    for name in all_reduce all_gather reduce_scatter broadcast reduce alltoall gather scatter sendrecv; do
        # The variable makes the programs find this library, whatever library their run path names.
        with "LD_LIBRARY_PATH=$home/lib:$toolkit/lib64" run "$build/nccl-tests/${name}_perf" -g "$gpus" -b 8 -e 64M -f 8 -n 5 || return
    done
    for name in "-d all -o all" "-G 5" "-R 1" "-R 2"; do
        # shellcheck disable=SC2086
        with "LD_LIBRARY_PATH=$home/lib:$toolkit/lib64" run "$build/nccl-tests/all_reduce_perf" -g "$gpus" -b 8 -e 1M -f 8 -n 2 $name || return
    done
    result "$title" "9 programs, 4 options of all_reduce_perf, $gpus GPUs: all results are right"
}
# The tests of the backend for torch on real devices. Ranks share a GPU if there is one.
torch_tests() {
    local python=${WEFT_TEST_TORCH_PYTHON:-python3} name
    "$python" -c 'import nanobind, torch; assert torch.cuda.is_available()' >>"$log" 2>&1 ||
        { not_here "$python has no torch for CUDA with nanobind: WEFT_TEST_TORCH_PYTHON may name one"; return; }
    python=$("$python" -c 'import sys; print(sys.executable)')
    run meson configure "$build" -Dpython=enabled "-Dpython_program=$python" "-Dtorch_program=$python" &&
        run ninja -C "$build" python-package || return
    for name in devices_test collectives_test windows_test train_arrays_test training_test.Training.test_{ddp,fsdp2,pipelining}; do
        with WEFT_TEST_SMALL=1 WEFT_TEST_TORCH_DEVICE=cuda OMP_NUM_THREADS=1 "PYTHONPATH=$(realpath "$build")/python:$top/tests/torch" \
            run env -C tests/torch "$python" -m unittest "$name" || return
    done
    result "$title" "calls, streams, windows, training objects, DDP, FSDP2, pipelines on $gpus GPUs: all are right"
}
# cores COUNT: one rank on each core.
cores() {
    [ "$1" -le "$(nproc)" ] || { not_here "there are $(nproc) cores"; return; }
    local sizes=8,4K,64K,1M,16M,64M,256M
    [ -z "$small" ] || sizes=8,4K
    run "$build/tools/weft" run -n "$1" --bind core "$(perf_of all_reduce)" --stat median-max --sizes "$sizes" &&
        result_of_perf "$title, $1 cores"
}
# Ninja continues after a compile error, so that the other programs can run.
build_all() {
    local targets
    targets=$(gpus_here)
    # shellcheck disable=SC2016
    run bash -c '. tools/common.sh; configure "$@"' configure "$build" --buildtype=release -Dunity=on -Dcuda=enabled "-Dtoolkit=$toolkit" \
        "-Dgpu_targets=${targets:-90}" -Dtests=enabled -Dtools=enabled -Dperf=enabled &&
        run ninja -k 0 -C "$build" gpu tools/weft src/nccl/libnccl.so.2 perf/all_reduce_perf_nccl "${perf_programs[@]}"
}
machine() {
    ! command -v nvidia-smi >/dev/null || run nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv
    run "$build/tools/weft" info
}

# stage_of NAME SECONDS TITLE COMMAND...: prints the stage's verdict and results; sets `status`.
stage_of() {
    local name=$1 most=$2 title=$3 left=$((budget_s - SECONDS)) begin=$SECONDS reason='' deadline rows='' how
    shift 3
    log=$logs/$name.log
    status=75
    if [ "$left" -lt 3 ]; then
        left_out+=("$name")
        say "$name: left out, no time"
        return
    fi
    # In the small form, a loaded machine must not cause a failure.
    [ -z "$small" ] || most=$left
    deadline=$((SECONDS + (most < left ? most : left)))
    current=$name
    printf '\n==> %s\n' "$name: $title"
    : >"$log"
    status=0
    "$@" || status=$?
    current=
    if [ -z "$output" ]; then cat "$log"; elif [ "$status" = 0 ]; then tail -n 5 "$log"; else tail -n 40 "$log"; fi
    how="$((SECONDS - begin)) s"
    case $status in
        0) how="passed, $how" ;;
        77) how="not here: $reason" ;;
        124 | 137)
            if [ "$SECONDS" -lt "$deadline" ]; then
                how="failed with status $status, $how"
            elif [ "$most" -le "$left" ]; then
                how="failed, stopped after $how"
            else
                status=75 how="left out, the time was over after $how"
            fi
            ;;
        *) how="failed with status $status, $how" ;;
    esac
    case $status in
        0 | 77) ;;
        75) left_out+=("$name") ;;
        *) failed+=("$name (${how#failed*, })") ;;
    esac
    rows="$name: $how$rows"
    say "$rows"
    [ "$status" != 0 ] || [ "$name" = build ] || [ "$name" = machine ] || remember "$name"
}

# ---- The run.
[ -z "$output" ] || printf '\n%s, commit %s\n' "$(date -u '+%F %T UTC')" "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" >>"$output/results.txt"
if [ "$make" = 1 ]; then
    # A quarter of the time remains for the first stages.
    stage_of build $((budget_s * 3 / 4)) "for the GPUs of this machine, in $build/" build_all
    [ "$status" = 0 ] || echo "gpu-check: the build is not complete: stages without their program fail, and the next run goes on with it"
fi
if [ ! -x "$build/tests/gpu/gpu_present" ]; then
    [ "${#failed[@]}" -gt 0 ] || [ "${#left_out[@]}" -gt 0 ] || failed+=("$build/tests/gpu/gpu_present is not built")
    finish
    exit
fi
status=0
present=$(timeout -k 3 60 "$build/tests/gpu/gpu_present" 2>&1) || status=$?
if [ "$status" != 0 ]; then
    [ "$status" = 77 ] || failed+=("gpu_present with status $status")
    say "no stage is run: ${present#skipped: }"
    finish
    exit
fi
# The log names the machine.
stage_of machine 30 "weft info" machine
if [ "$status" = 0 ]; then
    gpus=$(grep -c '^  device [0-9]' "$logs/machine.log")
    key="# $(passed_key)"
    [ "$(head -n 1 "$passed" 2>/dev/null)" = "$key" ] || echo "$key" >"$passed"
else
    passed=/dev/null
fi

several=0
while read -r -u 3 name of most about call; do
    if [[ $name == gpus-* ]] && [ "$gpus" = 1 ]; then
        [ "$several" = 1 ] || say "gpus-*: not here: there is one GPU"
        several=1
        continue
    fi
    before=$(block "$name")
    if [ "$fresh" = 0 ] && [ -n "$before" ]; then
        say "${before/: passed/: passed before}"
        continue
    fi
    read -ra words <<<"${call%%# *}"
    stage_of "$name" "$most" "${call#*\# }" "${words[@]}"
done 3< <(selected)
[ "$part" != 1 ] || echo "The other stages: tools/gpu-check.sh --part 2, --part 3"
finish
