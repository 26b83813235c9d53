#!/usr/bin/env bash
# gpu_check_test.sh SOURCE: the stages of tools/gpu-check.sh with programs that only say how they were called: order,
# selection, what has passed, time that ends, failures, files. With real programs: tests/gpu/gpu_check_test.sh.
# Conditions in a row stand before one failure.
# shellcheck disable=SC2015
set -uo pipefail
source=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
unset WEFT_TEST_SMALL VIRTUAL_ENV CONDA_PREFIX PERF_NCCL_LIBRARY
export PERF_NCCL_LIBRARY=$folder/none
fail() {
    cat "$folder/log"
    echo "gpu_check_test: $1"
    exit 1
}

# One program under all names. FAKE_FAIL, FAKE_HANG, FAKE_EMPTY match calls that fail, do not end, find no test. FAKE_SAYS:
# lines of a benchmark's log. FAKE_SM: of the GPU. FAKE_SECOND: there is another GPU.
fake=$folder/fake
cat >"$fake" <<'TEXT'
#!/usr/bin/env bash
name=$(basename "$0")
case "$name $1" in
    "gpu_present "*) echo "skipped: no driver"; exit "${FAKE_PRESENT:-0}" ;;
    "nproc "*) echo 16; exit ;;
    "nvcc "*) echo "Cuda compilation tools, release 13.0, V13.0.48"; exit ;;
    "weft info") printf 'GPUs\n  CUDA driver   for CUDA 13.0, libcuda.so.1\n  device code   for sm 90\n  device 0      %s, sm_%s, 16 multiprocessors\n' "${FAKE_GPU:-Fake}" "${FAKE_SM:-90}"; [ -z "${FAKE_SECOND:-}" ] || echo "  device 1      Fake, sm_90, 16 multiprocessors"; exit ;;
    "weft run") shift 3; [ "$1" != --bind ] || shift 2; exec "$@" ;;
    "compute-sanitizer "*) echo "$name $*" >>"$FAKE_CALLS"; shift 6; exec "$@" ;;
esac
echo "$name $*" >>"$FAKE_CALLS"
if [[ -n ${FAKE_FAIL:-} && "$name $*" =~ $FAKE_FAIL ]]; then exit 3; fi
if [[ -n ${FAKE_HANG:-} && "$name $*" =~ $FAKE_HANG ]]; then exec sleep 100; fi
if [[ -n ${FAKE_EMPTY:-} && "$name $*" =~ $FAKE_EMPTY ]]; then echo "No test cases matched '$1'"; exit 0; fi
echo "# Collective test starting: $name"
[[ $name != *_perf || -z ${FAKE_SAYS:-} ]] || echo "$FAKE_SAYS"
echo "  8 2 float sum -1 10.5 0 0 0 9 0 0 0"
echo "  268435456 67108864 float sum -1 1000.0 0 0 0 9 0 0 0"
case "$*" in *copy*) echo "result: device copy, read and written|2000 GB/s||" ;; esac
case "$*" in *brief*) echo "result: 8 B, launch to done|9 us|below 8 us|missed" ;; esac
exit 0
TEXT
chmod +x "$fake"
build=$folder/build
mkdir -p "$build"/{tests/gpu,tests/device,tools,perf,src/nccl} "$folder/bin" "$folder/toolkit/bin"
for program in tests/gpu/gpu_present tests/gpu/gpu_test tests/device/real_device_test tests/device/real_device_collectives_test tests/device/real_device_crossing_test tools/weft perf/all_reduce_perf_nccl; do
    ln -s "$fake" "$build/$program"
done
for program in all_reduce all_gather reduce_scatter broadcast reduce alltoall gather scatter sendrecv pingpong alltoallv put; do ln -s "$fake" "$build/perf/${program}_perf"; done
for program in nproc meson ninja; do ln -s "$fake" "$folder/bin/$program"; done
for program in nvcc compute-sanitizer; do ln -s "$fake" "$folder/toolkit/bin/$program"; done
export PATH=$folder/bin:$PATH CUDA_HOME=$folder/toolkit WEFT_GPU_BUILD=$build WEFT_GPU_BUDGET_S=100000 FAKE_CALLS=$folder/calls

# check ARGUMENTS...: its output is in $folder/log, the calls of programs in $folder/calls; `status`.
check() {
    : >"$folder/calls"
    status=0
    "$source/tools/gpu-check.sh" "$@" >"$folder/log" 2>&1 || status=$?
    sed -n '/^results, in/,$p' "$folder/log" >"$folder/results"
}
# stage NAME HOW: its row, and no other of it.
stage() {
    [ "$(grep -c "^$1: " "$folder/results")" = 1 ] || fail "not one row of $1"
    grep -qE "^$1: $2" "$folder/results" || fail "$1 is not: $2"
}
calls() { wc -l <"$folder/calls"; }

# The plan: each part fits, with the build.
"$source/tools/gpu-check.sh" --list >"$folder/list" || fail "no list"
"$source/tools/gpu-check.sh" --list >/dev/full 2>"$folder/log" && fail "a list that is not written is no failure"
[ "$(wc -l <"$folder/log")" = 1 ] || fail "a list that is not written is told more than once"
for part in 1 2 3; do
    seconds=$(awk -v part="$part" '$2 == part && $1 !~ /^gpus-/ { all += $4 } END { print all + 0 }' "$folder/list")
    [ "$seconds" -gt 0 ] && [ "$seconds" -le 400 ] || fail "part $part takes $seconds s"
    "$source/tools/gpu-check.sh" --part "$part" --list | awk -v part="$part" 'NR > 1 && $2 != part { exit 1 }' || fail "--part $part --list lists another part"
done

# Part 1 on one GPU: every stage passes, in the order of the list.
check --no-build
[ "$status" = 0 ] || fail "status $status"
tail -n 1 "$folder/log" | grep -qx "gpu-check: nothing failed" || fail "the last line is another"
diff <(sed -n 's/^\([a-z0-9_-]*\): .*/\1/p' "$folder/results" | grep -vx -e machine -e gpu-check) \
    <(awk '$2 == 1 && $1 !~ /^gpus-/ { print $1 }' "$folder/list") >"$folder/difference" || { cat "$folder/difference"; fail "another order"; }
for name in copy smoke-put processes-registered calls-of-processes kernels repeats memcheck bits cores-16; do stage "$name" passed; done
stage nccl "not here"
stage drop-in "not here"  # there is no library in this build
grep -q "^gpus-\*: not here" "$folder/results" || fail "it does not say that there is one GPU"
grep -q "^  all-reduce of 256 MiB, 4 threads on one GPU .*8 B 10.5 us, 256 MiB 1000.0 us, 107 % of the copy$" "$folder/results" || fail "no result of a benchmark"
grep -q "^  8 B, launch to done .*9 us .*goal: below 8 us, missed$" "$folder/results" || fail "no result of kernels"
# A result is there before the next stage begins.
awk '/^==> smoke-all-reduce/ { exit seen != 1 } /^  device copy, read and written/ { seen = 1 }' "$folder/log" || fail "results wait for the end"
# racecheck knows shared memory alone, which only the messages' kernel has.
grep "^compute-sanitizer" "$folder/calls" | sed 's/.*--tool \([a-z]*\) .*\/\([a-z_]*\) .*/\1 \2/' >"$folder/tools"
printf '%s\n' "memcheck gpu_test" "synccheck gpu_test" "initcheck gpu_test" "racecheck sendrecv_perf" | diff - "$folder/tools" || fail "other sanitizers"

# A stage that has passed is not run again, but its results are there.
check --no-build
[ "$status" = 0 ] && [ "$(calls)" = 0 ] || fail "a second run makes calls"
stage copy "passed before"
grep -q "^  device copy, read and written .*2000 GB/s$" "$folder/results" || fail "the results are gone"
check --no-build --fresh --only '^(copy|put)$'
[ "$status" = 0 ] && [ "$(calls)" = 2 ] || fail "--fresh does not run both again"
[ "$(grep -c ": " "$folder/results")" = 4 ] || fail "--only runs others"  # with machine, and the last line
# Nor does a pass count for another GPU or other programs.
FAKE_GPU=other check --no-build --only '^copy$'
stage copy passed,
check --no-build --only '^copy$'
stage copy passed,
rm "$build/perf/put_perf" && cp "$fake" "$build/perf/put_perf" && echo "# changed" >>"$build/perf/put_perf"
check --no-build --only '^copy$'
stage copy passed,

for arguments in "--only nothing-like-it" "--only (" "--part 4" "--only" "--quick"; do
    # shellcheck disable=SC2086
    check --no-build $arguments
    [ "$status" = 2 ] || fail "status $status of $arguments"
done

# A stage that fails: the others run, and the next run begins with it.
FAKE_FAIL='^put_perf' check --no-build --only smoke
[ "$status" = 1 ] || fail "status $status of a failure"
stage smoke-put "failed with status 3"
stage smoke-bandwidth passed
tail -n 1 "$folder/log" | grep -qx "gpu-check: 1 stages failed" || fail "the last line is not that one failed"
mkdir "$folder/output"
check --no-build --only smoke --output "$folder/output"
[ "$status" = 0 ] && [ "$(calls)" = 1 ] || fail "it does not run what failed, alone"
stage smoke-put passed,
FAKE_EMPTY='^(gpu_test|real_device_test)' check --no-build --fresh --only '^(copy|calls|memcheck)$'
for name in copy calls memcheck; do stage "$name" "failed with status 1"; done  # no test has run

# Stages of one path: the log must prove it. Otherwise no time is printed.
says() { FAKE_SECOND=1 FAKE_SAYS=$1 check --no-build --fresh --only "^$2\$"; }
timed() { grep -q "^  .* as processes .*10.5 us" "$folder/results"; }
refused="the switch does not reduce and hand out messages of device memory: bind:"
used="the switch reduces and hands out messages, through 16 bytes of each device"
says "" gpus-multicast
stage gpus-multicast "not here: the GPUs have no switch that reduces"
says "$refused CUDA_ERROR_SYSTEM_NOT_READY (802)" gpus-multicast
stage gpus-multicast "not here: bind: CUDA_ERROR_SYSTEM_NOT_READY"
timed && fail "a time without the switch stands under its name"
says "$refused CUDA_ERROR_INVALID_VALUE (1)" gpus-multicast
stage gpus-multicast "failed with status 1"
says "$used" gpus-multicast
stage gpus-multicast passed
timed || fail "no time of the switch"
for place in "gpus-multicast-windows window" "gpus-multicast-registered registered buffer"; do
    says "$used" "${place%% *}"
    stage "${place%% *}" "failed with status 1"
    says "$used"$'\n'"${place#* } 1 cannot lie behind the switch: refused" "${place%% *}"
    stage "${place%% *}" "failed with status 1"
    timed && fail "a staged time stands under ${place#* }"
    says "$used"$'\n'"${place#* } 1 of 16 bytes lies behind the switch" "${place%% *}"
    stage "${place%% *}" passed
done
says "$used"$'\n'"window 1 of 16 bytes lies behind the switch" gpus-multicast-half
stage gpus-multicast-half passed
for place in staged "symmetric windows"; do grep -q "^  all-reduce of float16 by the switch, $place, 2 GPUs" "$folder/results" || fail "no result: $place"; done
says "$used"$'\n'"window 1 of 16 bytes lies behind the switch" gpus-multicast-fp8
stage gpus-multicast-fp8 "not here: no compute capability 10"
FAKE_SM=103 says "$used"$'\n'"window 1 of 16 bytes lies behind the switch" gpus-multicast-fp8
stage gpus-multicast-fp8 passed
declined="kernels move the data although blockPolicy is zero: rank 1"
says "" gpus-engines
stage gpus-engines passed
says "$declined has no 64-bit stream memory operations" gpus-engines
stage gpus-engines "not here: no 64-bit stream memory operations"
says "$declined has few hardware queues (WEFT_GPU_QUEUES)" gpus-engines
stage gpus-engines "failed with status 1"
says "" gpus-registered
stage gpus-registered passed
says "cannot map what rank 1 has registered, so messages are staged: refused" gpus-registered
stage gpus-registered "failed with status 1"
timed && fail "a staged time stands under registered buffers"

# Files: results of several runs, and a stage's output.
check --no-build --only '^copy$' --output "$folder/output"
for name in smoke-put copy gpu-check; do grep -q "^$name: " "$folder/output/results.txt" || fail "no $name in results.txt"; done
grep -q "^# Collective test starting: put_perf" "$folder/output/smoke-put.log" || fail "no output of smoke-put"
[ -s "$folder/output/machine.log" ] || fail "no weft info"

# The time ends midway. All rows are there, nothing failed, and the next run does the rest.
rm "$build/gpu-check.passed"
FAKE_HANG='^put_perf' WEFT_GPU_BUDGET_S=4 check --no-build --only smoke
[ "$status" = 1 ] || fail "status $status without time"
while read -r name; do stage "$name" "(passed|left out)"; done < <(awk '/^smoke/ { print $1 }' "$folder/list")
for name in smoke-put smoke-latency smoke-bandwidth; do
    stage "$name" "left out"
    grep -qx "left out: $name" "$folder/log" || fail "it does not say that $name is left out"
done
grep -q "^failed:" "$folder/log" && fail "no time is called a failure"
check --no-build --only smoke
[ "$status" = 0 ] || fail "status $status of the rest"
stage smoke-put passed,
WEFT_GPU_BUDGET_S=0 check
[ "$status" = 1 ] || fail "status $status without any time"
stage build "left out"
stage cores-16 "left out"

# A signal: the results so far are printed.
FAKE_HANG='^put_perf' "$source/tools/gpu-check.sh" --no-build --fresh --only smoke >"$folder/log" 2>&1 &
script=$!
until grep -q "^==> smoke-put" "$folder/log"; do sleep 0.1; done
kill "$script"
wait "$script" && fail "status 0 of what was ended"
sed -n '/^results, in/,$p' "$folder/log" >"$folder/results"
stage smoke-messages passed
stage smoke-put interrupted

# The build: Ninja goes on behind what does not compile, and so does the script. It does not take all of the time.
check --only '^put$'
[ "$status" = 0 ] || fail "status $status of a build"
for target in gpu tools/weft $(cd "$build" && ls perf/*); do
    grep "^ninja -k 0 -C $build " "$folder/calls" | grep -q " $target\( \|$\)" || fail "it does not build $target"
done
FAKE_FAIL='^ninja' check --only '^copy$' --fresh
[ "$status" = 1 ] || fail "status $status of a build that fails"
stage build "failed with status 3"
stage copy passed
FAKE_HANG='^ninja' WEFT_GPU_BUDGET_S=4 check --only '^copy$' --fresh
[ "$status" = 1 ] || fail "status $status of a build that does not end"
stage build "(failed, stopped after|left out)"  # left out where the script alone takes the time
FAKE_PRESENT=77 check
[ "$status" = 0 ] || fail "status $status without a GPU"
grep -q "^meson setup" "$folder/calls" || fail "without a GPU it does not build"
grep -q "^no stage is run: no driver" "$folder/results" || fail "it does not say that there is no GPU"
grep -q "^copy: " "$folder/results" && fail "stages without a GPU"
FAKE_PRESENT=1 check --no-build
[ "$status" = 1 ] || fail "status $status of a program that fails to look for GPUs"

# NCCL: the newest that is found, in a Python environment too; one rank of each where two cannot share a GPU.
nccl() {
    mkdir -p "$(dirname "$2")"
    echo "int ncclGetVersion(int* version) { *version = $1; return 0; }" | "${CC:-cc}" -shared -fPIC -x c -o "$2" - || fail "no C compiler"
}
unset PERF_NCCL_LIBRARY
environment=$folder/venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2
nccl 990102 "$environment"
VIRTUAL_ENV=$folder/venv "$source/tools/find_nccl.py" | tail -n 1 | grep -qx "99.1.2 $environment" || fail "not found in an environment"
VIRTUAL_ENV=$folder/venv "$source/tools/find_nccl.py" 2>&1 >/dev/full | grep -q Traceback && fail "find_nccl does not check its output"
VIRTUAL_ENV=$folder/venv check --no-build --only nccl
stage nccl passed
grep -q "^all_reduce_perf_nccl -g 1 --ranks-per-gpu 4 " "$folder/calls" || fail "NCCL with other ranks"
grep -q "^  NCCL 99.1.2, 4 threads on one GPU .*10.5 us" "$folder/results" || fail "no result of NCCL"
mkdir "$folder/weft" && echo "int weftGetVersion; int ncclGetVersion(int* version) { return *version = 23007, 0; }" | "${CC:-cc}" -shared -fPIC -x c -o "$folder/weft/libnccl.so.2" -
LD_LIBRARY_PATH=$folder/weft VIRTUAL_ENV=$folder/venv "$source/tools/find_nccl.py" | grep 2.30.7 && fail "Weft's library is taken for NCCL"
nccl 22703 "$folder/old.so"
PERF_NCCL_LIBRARY=$folder/old.so FAKE_FAIL='_nccl' check --no-build --fresh --only nccl
stage nccl passed
grep -q "^  NCCL 2.27.3, 4 threads on one GPU .*not run: older than 2.30" "$folder/results" || fail "it does not say that NCCL is too old"
grep -q "^  NCCL 2.27.3, 1 rank .*did not run" "$folder/results" || fail "it does not say that NCCL failed"
grep -q "^  Weft, 1 rank .*10.5 us" "$folder/results" || fail "no Weft beside NCCL"
grep -q "^all_reduce_perf_nccl -g 1 --sizes" "$folder/calls" || fail "an old NCCL with other ranks"

# Weft's libnccl.so.2: its stages fail with the program, and nccl-tests are compiled for this library.
library=$build/src/nccl/libnccl.so.2
touch "$library"
check --no-build --only '^drop-in$'
stage drop-in passed
grep -q "^all_reduce_perf_nccl -g 1 --ranks-per-gpu 4 " "$folder/calls" || fail "the drop-in with other ranks"
FAKE_FAIL='_nccl' check --no-build --fresh --only '^drop-in$'
stage drop-in "failed with status 3"
check --no-build --only nccl-tests
stage nccl-tests "not here: WEFT_TEST_NCCL_TESTS"
mkdir -p "$folder/sources/src" "$folder/toolkit/include" "$build/nccl-tests" && touch "$folder/sources/src/all_reduce.cu" "$folder/toolkit/include/nccl.h"
ln -s "$fake" "$folder/bin/make"
for program in all_reduce all_gather reduce_scatter broadcast reduce alltoall gather scatter sendrecv; do ln -s "$fake" "$build/nccl-tests/${program}_perf"; done
WEFT_TEST_NCCL_TESTS=$folder/sources check --no-build --only nccl-tests
stage nccl-tests passed
grep -q "^make -C $folder/sources/src .*BUILDDIR=$build/nccl-tests .*arch=compute_90,code=sm_90 build$" "$folder/calls" || fail "nccl-tests are not compiled"
[ "$(grep -c "^all_reduce_perf -g 1 " "$folder/calls")" = 5 ] || fail "all_reduce_perf does not run with each option"
WEFT_TEST_NCCL_TESTS=$folder/sources FAKE_FAIL='^scatter_perf' check --no-build --fresh --only nccl-tests
stage nccl-tests "failed with status 3"
exit 0
