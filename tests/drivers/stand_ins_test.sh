#!/bin/sh
# stand_ins_test.sh NM WITH WITHOUT FUNCTIONS: what stands for the GPU's part in a build without CUDA's headers has all
# functions (an extended regular expression) that there are with them.
nm=$1 with=$2 without=$3 functions=$4
of() { "$nm" -C --defined-only "$1" | sed -n 's/^[0-9a-f]* T //p' | grep -E "^($functions)\(" | sort -u; }
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
of "$with" >"$folder/with"
of "$without" >"$folder/without"
[ -s "$folder/with" ] || { echo "$with has no $functions"; exit 1; }
[ -z "$(comm -23 "$folder/with" "$folder/without")" ] || { echo "$without lacks:"; comm -23 "$folder/with" "$folder/without"; exit 1; }
