#!/usr/bin/env bash
# gpu_check_test.sh SOURCE BUILD: all stages of tools/gpu-check.sh with the programs of BUILD on the fake driver. It finds
# missing programs and wrong flags before there is a GPU. The stages' order, selection and time:
# tests/scripts/gpu_check_test.sh.
source=$1 build=$2
for program in tests/gpu/gpu_test tests/device/real_device_test tools/weft perf/put_perf perf/all_reduce_perf_nccl tests/perf/libfake_nccl.so src/nccl/libnccl.so.2; do
    [ -x "$build/$program" ] || { echo "skipped: $build/$program is not built: ninja all gpu"; exit 77; }
done
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
fail() { cat "$folder/log"; echo "gpu_check_test: $1"; exit 1; }
# Programs that are linked with the driver's library find the fake one. Weft must load the same file: a second one would
# be another driver, in which no context is current. A copy: the library looks for that name among the process's files.
mkdir "$folder/driver" && cp "$build/tests/fake_cuda/libcuda_fake.so" "$folder/driver/libcuda.so.1"
export WEFT_CUDA_LIBRARY=$folder/driver/libcuda.so.1
# A sanitizer that only runs what it is given, once of what three of its tools look at.
mkdir -p "$folder/toolkit/bin"
# shellcheck disable=SC2016
printf '#!/bin/sh\ncase $2 in synccheck | initcheck) exit 0 ;; esac\nshift 6\nexec "$@"\n' >"$folder/toolkit/bin/compute-sanitizer"
printf '#!/bin/sh\necho "Cuda compilation tools, release 13.0, V13.0.48"\n' >"$folder/toolkit/bin/nvcc"
chmod +x "$folder/toolkit/bin"/*
# The programs by links, so that what passes is noted here and not in BUILD.
mkdir -p "$folder/build/perf" && ln -s "$build/tests" "$build/tools" "$build/src" "$folder/build/" && ln -s "$build"/perf/*_perf* "$folder/build/perf/"

LD_LIBRARY_PATH="$folder/driver" FAKE_CUDA="multiprocessors 64; gpus 2" WEFT_TEST_SMALL=1 WEFT_GPU_BUILD=$folder/build WEFT_GPU_BUDGET_S=100000 CUDA_HOME=$folder/toolkit \
    PERF_NCCL_LIBRARY=$build/tests/perf/libfake_nccl.so "$source/tools/gpu-check.sh" --no-build --part all --output "$folder/output" >"$folder/log" 2>&1 || fail "it failed"
tail -n 1 "$folder/log" | grep -qx "gpu-check: nothing failed" || fail "the last line is another"
results=$folder/output/results.txt
while read -r name _; do
    grep -qE "^$name: (passed,|not here: (there are [0-9]+ (cores|GPUs)|WEFT_TEST_NCCL_TESTS|python3 has no torch|the GPUs have no switch|no compute capability 10))" "$results" || fail "$name has not passed"
done < <("$source/tools/gpu-check.sh" --list | tail -n +2)
for row in "device copy.* GB/s" "8 B, 8 virtual ranks, launch to done  .* us .*below 8 us" "8 B, 8 virtual ranks, launch to done, graph .* us .*below 6 us" \
    "peer_two_shot of .*, 2 virtual ranks .*goal: 85 %" "local_reduce of .*, 8 virtual ranks .* of the copy" "peer_two_shot by type.*bfloat16" \
    "peer_one_shot, all_gather of .*, 4 virtual ranks .*goal: 85 %" "steps, ring of .*, 8 virtual ranks .* of the copy" \
    "all-reduce of 8 B, 4 threads on one GPU .*8 B .* us" "registered buffers (cuIpc), 2 processes on one GPU .*8 B .* us, 4 KiB .* us" \
    "all-reduce, 2 GPUs as threads .*4 KiB" "all-reduce, registered, 2 GPUs as processes .*4 KiB" "all-reduce in graphs, 2 GPUs as threads .*4 KiB" \
    "WEFT_GPU_PATH=copies, 2 processes on one GPU .*4 KiB" "NCCL 2.30.7, 4 threads on one GPU .*4 KiB" "Weft, 2 GPUs as threads .*4 KiB" \
    "all-reduce through Weft's libnccl.so.2, -g 2 .*4 KiB" "all-reduce through Weft's libnccl.so.2, in graphs, -g 2 .*4 KiB"; do
    grep -q "^  $row" "$results" || fail "no result: $row"
done
grep -q "^  device 1 .*Fake GPU 1" "$folder/output/machine.log" || fail "no weft info"
grep -q "test cases: 3 | 3 passed" "$folder/output/memcheck.log" || fail "memcheck does not look at bodies, collectives and steps"
for stage in calls collectives calls-of-processes repeats; do
    grep -q "^All tests passed" "$folder/output/$stage.log" || fail "$stage runs no test"
done
exit 0
