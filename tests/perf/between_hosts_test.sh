#!/usr/bin/env bash
# between_hosts_test.sh SCRIPT: ranks of perf/between_hosts end with it. Stubs take the place of `ip`, `tc` and the ranks.
set -uo pipefail
[ "$(id -u)" = 0 ] || { echo "skipped: perf/between_hosts refuses to run without root"; exit 77; }
folder=$(mktemp -d) || exit 1
fail() { echo "between_hosts_test: $1"; cat "$folder/said"; exit 1; }
trap 'kill -KILL $(cat "$folder/ranks") 2>/dev/null; rm -rf "$folder"' EXIT
mkdir -p "$folder"/{bin,build/perf}
# ip netns exec NAME COMMAND...
printf '#!/bin/sh\n[ "$1 $2" = "netns exec" ] || exit 0\nshift 3\nexec "$@"\n' >"$folder/bin/ip"
printf '#!/bin/sh\n' >"$folder/bin/tc"
printf '#!/bin/sh\necho $$ >>"%s/ranks"\nexec sleep 1000\n' "$folder" >"$folder/build/perf/all_reduce_perf"
chmod +x "$folder"/bin/* "$folder/build/perf/all_reduce_perf"
: >"$folder/ranks"

PATH=$folder/bin:$PATH python3 "$1" --hosts 2 --ranks 4 --algorithms ring --build "$folder/build" >"$folder/said" 2>&1 &
script=$!
for _ in $(seq 600); do
    [ "$(wc -l <"$folder/ranks")" -lt 4 ] || break
    sleep 0.1
done
[ "$(wc -l <"$folder/ranks")" = 4 ] || fail "no four ranks"
kill -TERM "$script"
wait "$script"
[ $? = 1 ] || fail "another status than 1"
for rank in $(cat "$folder/ranks"); do
    ! kill -0 "$rank" 2>/dev/null || fail "rank with pid $rank is left"
done
: >"$folder/ranks"  # their pids may be of other processes soon
exit 0
