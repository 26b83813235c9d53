#!/bin/sh
# gpu_check_test.sh SOURCE BUILD: tools/gpu-check.sh with the programs of BUILD on the fake driver, so that a program that
# is missing or a flag that is wrong is found before there is a GPU.
source=$1 build=$2
nccl=$build/tests/perf/libfake_nccl.so
for program in tests/gpu/gpu_test tests/device/real_device_test tools/weft perf/put_perf perf/all_reduce_perf_nccl tests/perf/libfake_nccl.so; do
    [ -x "$build/$program" ] || { echo "skipped: $build/$program is not built: ninja all gpu"; exit 77; }
done
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
machine="multiprocessors 64; gpus"
# What programs find that are linked with the driver's library.
mkdir "$folder/driver" && ln -s "$build/tests/fake_cuda/libcuda_fake.so" "$folder/driver/libcuda.so.1"
check() { LD_LIBRARY_PATH="$folder/driver" FAKE_CUDA="$machine ${3:-2}" WEFT_TEST_SMALL=1 WEFT_GPU_BUILD=$1 WEFT_GPU_BUDGET_S=$2 PERF_NCCL_LIBRARY=$nccl "$source/tools/gpu-check.sh" --no-build >"$folder/log" 2>&1; }
fail() { cat "$folder/log"; echo "gpu_check_test: $1"; exit 1; }

check "$build" 100000 || fail "it failed"
tail -n 1 "$folder/log" | grep -qx "gpu-check: nothing failed" || fail "the last line is another"
sed -n '/^results/,$p' "$folder/log" >"$folder/results"
for row in "100,000 calls.* passed .*goal: no error, met" "200 calls of random kinds, of 4 ranks on streams .*passed .*met" "8 B, 8 virtual ranks, launch to done  .* us .*below 8 us" \
    "8 B, 8 virtual ranks, launch to done, graph .* us .*below 6 us" "device copy.* GB/s" "peer_two_shot of .*, 2 virtual ranks .*goal: 85 %" \
    "local_reduce of .*, 8 virtual ranks .* of the copy" "peer_two_shot by type.*bfloat16" "all_reduce_perf, 4 threads on one GPU .*8 B .* us, 4 KiB .* us, .* of the copy" \
    "2 GPUs as threads .*8 B .* us, 4 KiB .* us *$" "2 GPUs as threads, as graphs .*4 KiB" "2 GPUs as processes .*4 KiB" "2 GPUs as processes, registered .*4 KiB" \
    "peer_one_shot, all_gather of .*, 4 virtual ranks .*goal: 85 %" "steps, ring of .*, 8 virtual ranks .* of the copy" \
    "the same as graphs .*4 KiB" "4 processes, registered .*4 KiB" "2 processes, registered (cuIpc) .*4 KiB" "2 processes, registered (descriptors) .*4 KiB" \
    "2 processes by WEFT_GPU_PATH=descriptors .*4 KiB" "2 processes by WEFT_GPU_PATH=host .*4 KiB" "2 processes by WEFT_GPU_PATH=copies .*4 KiB" "NCCL, 4 threads on one GPU .*4 KiB"; do
    grep -q "^$row" "$folder/results" || fail "no result: $row"
done

grep -q "^  device 1 .*Fake GPU 1" "$folder/log" || fail "it does not begin with weft info"
for stage in "alltoall, 2 GPUs as threads" "sendrecv, 2 GPUs as processes, registered" "2 GPUs as processes, registered, as graphs" \
    "messages of 2 processes by host" "2 threads by copies" "calls" "calls of processes" "collectives"; do
    grep -q "^<== $stage: [0-9]* s$" "$folder/log" || fail "no stage $stage"
done
[ -x "${CUDA_HOME:-${CUDA_PATH:-/usr/local/cuda}}/bin/compute-sanitizer" ] || command -v compute-sanitizer >/dev/null ||
    grep -q "^memcheck, racecheck .*not run: no compute-sanitizer found" "$folder/results" || fail "it does not say that the sanitizer is missing"

# A program that is missing is a failure, and so are stages without time.
mkdir -p "$folder/build/perf" && ln -s "$build/tests" "$build/tools" "$folder/build/" && ln -s "$build"/perf/*_perf* "$folder/build/perf/"
rm "$folder/build/perf/put_perf"
# Also an NCCL that is too old, and a sanitizer, here one that only runs what it is given.
mkdir -p "$folder/toolkit/bin"
printf '#!/bin/sh\nshift 6\nexec "$@"\n' >"$folder/toolkit/bin/compute-sanitizer"
printf '#!/bin/sh\necho "Cuda compilation tools, release 13.0, V13.0.48"\n' >"$folder/toolkit/bin/nvcc"
chmod +x "$folder/toolkit/bin"/*
export FAKE_NCCL_VERSION=22907 CUDA_HOME="$folder/toolkit"
check "$folder/build" 100000 1 && fail "it does not miss put_perf"
grep -q "^NCCL, 4 threads on one GPU .*not run: 2.29.7 is older than 2.30" "$folder/log" || fail "it does not say that NCCL is too old"
grep -q "^==> NCCL" "$folder/log" && fail "it runs an NCCL that is too old"
for tool in memcheck racecheck; do
    sed -n "/^==> $tool/,/^<== $tool/p" "$folder/log" | grep -q "test cases: 3 | 3 passed" || fail "$tool does not look at bodies, collectives and steps"
done
grep -q "^failed: put, 4 threads on one GPU" "$folder/log" || fail "it does not miss put_perf"
tail -n 1 "$folder/log" | grep -qx "gpu-check: 3 stages failed" || fail "it misses something else"
grep -q "^several GPUs .*not tried: there is one here" "$folder/log" || fail "it does not say that there is one GPU"
check "$build" 0 && fail "it does not say that there was no time"
grep -q "^left out for want of time: puts as graphs" "$folder/log" || fail "it does not say what there was no time for"
