#!/usr/bin/env bash
# soak_test.sh SOURCE: tools/soak reads its seed as a decimal number. A stub takes the place of `weft run`.
set -uo pipefail
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
fail() { echo "soak_test: $1"; exit 1; }
mkdir "$folder/tools"
printf '#!/bin/sh\necho "$5" >>"%s/seeds"\n' "$folder" >"$folder/tools/weft"
chmod +x "$folder/tools/weft"

for seed in 8 08 010; do
    said=$("$1/tools/soak" --runs 2 "$seed" "$folder") || fail "seed $seed: a run failed: $said"
    grep -q '^2 runs in' <<<"$said" || fail "seed $seed: $said"
done
[ "$(tr '\n' ' ' <"$folder/seeds")" = "8 9 8 9 10 11 " ] || fail "other seeds: $(cat "$folder/seeds")"
for seed in x -1 1234567890123456789; do
    "$1/tools/soak" --runs 1 "$seed" "$folder" 2>/dev/null
    [ $? = 2 ] || fail "seed $seed is accepted"
done
exit 0
