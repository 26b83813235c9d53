#!/usr/bin/env bash
# stages_test.sh SOURCE: the stages of tools/test, with stubs in the place of Meson and Ninja: the stages of each mode,
# and those that a second nightly run skips.
set -uo pipefail
source=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; cat "$folder/said"; exit 1; }

mkdir -p "$folder"/{bin,tree/tools,tree/.ci} "$folder"/tree/{include,src,algorithms,topology,transports,perf,python,tests,examples,docs}
cp "$source"/tools/{test,common.sh,count_tests.py,checked_output.py} "$folder/tree/tools/"
cp "$source/.ci/run" "$folder/tree/.ci/"
cd "$folder/tree" || exit 1
: >tools/packages.txt
touch README.md meson.build meson_options.txt src/a.cpp
# A test of one case, which fails if $folder/wrong is there.
cat >"$folder/bin/meson" <<TEXT
#!/bin/bash
echo "meson \$* small=\${WEFT_TEST_SMALL:-0}\${WEFT_TEST_SMALL_LONG:-0}" >>"$folder/calls"
[ "\$1" = test ] || exit 0
mkdir -p "\$3/meson-logs"
result=OK
[ ! -f "$folder/wrong" ] || result=FAIL
echo '{"name": "t", "result": "'\$result'", "stdout": "", "stderr": ""}' >"\$3/meson-logs/testlog.json"
[ "\$result" = OK ]
TEXT
printf '#!/bin/sh\nexit 0\n' >"$folder/bin/ninja"
chmod +x "$folder"/bin/*
export PATH=$folder/bin:$PATH
unset WEFT_TEST_SMALL WEFT_TEST_SMALL_LONG

# run STATUS ARGUMENTS...
run() {
    local expected=$1 status=0
    shift
    : >"$folder/calls"
    tools/test "$@" >"$folder/said" 2>&1 || status=$?
    [ "$status" = "$expected" ] || fail "tools/test $*: status $status, not $expected"
}
said() { grep -q -- "$1" "$folder/said" || fail "it did not say: $1"; }
tests_in() { grep -c "^meson test -C $1 .*${2:-}" "$folder/calls"; }
last() { tail -1 "$folder/said"; }

run 0 --stage release
[ "$(last)" = "1 passed, 0 failed" ] || fail "one stage: $(last)"
[ "$(tests_in build '--no-suite nightly .*small=10')" = 1 ] || fail "quick tests are not small: $(cat "$folder/calls")"
said 'skipped: the suites python and torch'
said 'skipped: the suite sass'
run 1 --all --stage release
[ "$(last)" = "1 passed, 1 failed" ] || fail "CI without a disassembler: $(last)"
printf '#!/bin/sh\necho /a/disassembler\n' >tools/cuda-disassembler
chmod +x tools/cuda-disassembler
run 0 --stage release
grep -q 'meson setup .*-Dpython=disabled' "$folder/calls" || fail "Python is not left out: $(cat "$folder/calls")"
printf '#!/bin/sh\necho /a/python\n' >tools/python-packages
chmod +x tools/python-packages
run 0 --stage release
grep -q 'meson setup .*-Dpython=enabled -Dpython_program=/a/python ' "$folder/calls" || fail "Python is left out: $(cat "$folder/calls")"
! grep -q skipped "$folder/said" || fail "the suite python is skipped"
run 0
[ "$(last)" = "3 passed, 0 failed" ] || fail "the stages without a mode: $(last)"
run 0 --all --stage release
said 'skipped: the suite torch'
printf '#!/bin/sh\necho /a/torch$1\n' >tools/torch-packages
printf '#!/bin/sh\necho /a/clients\n' >tools/nccl-clients
chmod +x tools/torch-packages tools/nccl-clients
run 0 --all --stage release --stage fuzz
grep -q 'meson setup .*-Dtorch_program=/a/torch ' "$folder/calls" || fail "torch is left out: $(cat "$folder/calls")"
[ "$(last)" = "2 passed, 0 failed" ] || fail "two stages: $(last)"
[ "$(tests_in build '--no-suite nightly .*small=01')" = 1 ] || fail "CI's tests are small: $(cat "$folder/calls")"
[ "$(tests_in build-asan-fuzz '--suite fuzz')" = 1 ] || fail "fuzzing: $(cat "$folder/calls")"
mkdir tests/rdma
cat >tests/rdma/run <<'TEXT'
#!/bin/bash
[ "$1" != --rails ] || shift 2
echo '{"name": "rdma", "result": "OK", "stdout": "kills '${RDMA_KILLS:-}'", "stderr": ""}' >>"$2"
TEXT
chmod +x tests/rdma/run
run 0 --rdma
[ "$(last)" = "2 passed, 0 failed" ] || fail "one and two rails: $(last)"
[ "$(tests_in build)" = 0 ] || fail "--rdma runs other tests: $(cat "$folder/calls")"
run 2 --stage nothing
run 2 --nothing

# A stage that passed is skipped, and counts. A stage that failed runs again.
nightly=(--nightly --stage release --stage asan)
touch "$folder/wrong"
run 1 "${nightly[@]}"
[ "$(last)" = "0 passed, 2 failed" ] || fail "nightly, all wrong: $(last)"
rm "$folder/wrong"
run 0 --nightly --stage release
run 0 "${nightly[@]}"
said "release: skipped"
[ "$(last)" = "2 passed, 0 failed" ] || fail "nightly, one of two skipped: $(last)"
[ "$(tests_in build-asan-fuzz)" = 1 ] || fail "the stage that failed does not run again"
[ "$(tests_in build ' ')" = 0 ] || fail "the stage that passed runs again"
run 0 "${nightly[@]}" --fresh
[ "$(tests_in build ' ')" = 1 ] || fail "--fresh skips"
echo "// changed" >>src/a.cpp
run 0 "${nightly[@]}"
[ "$(tests_in build ' ')" = 1 ] || fail "a changed source is not seen"
[ "$(tests_in build '--no-suite nightly')" = 0 ] || fail "the nightly run leaves nightly tests out"
run 0 --nightly --stage torch
grep -q 'meson setup .*-Dtorch_program=/a/torch2.11.0 ' "$folder/calls" || fail "the old torch is left out: $(cat "$folder/calls")"
run 0 --nightly --stage release --stage frameworks
said 'skipped: the suite frameworks'
printf '#!/bin/sh\necho /a/frameworks\n' >tools/framework-packages
chmod +x tools/framework-packages
run 0 --nightly --stage frameworks
[ "$(tests_in build '--suite frameworks')" = 1 ] || fail "the frameworks are left out: $(cat "$folder/calls")"
echo "the stages are right"
