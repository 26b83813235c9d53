#!/bin/sh
# stand_ins_test.sh NM WITH WITHOUT FUNCTIONS: the stand-ins of a build without CUDA's headers have all functions of the
# GPU part that match FUNCTIONS, an extended regular expression.
nm=$1 with=$2 without=$3 functions=$4
of() { "$nm" -C --defined-only "$1" | sed -n 's/^[0-9a-f]* T //p' | grep -E "^($functions)\(" | sort -u; }
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
of "$with" >"$folder/with"
of "$without" >"$folder/without"
[ -s "$folder/with" ] || { echo "$with has no $functions"; exit 1; }
[ -z "$(comm -23 "$folder/with" "$folder/without")" ] || { echo "$without lacks:"; comm -23 "$folder/with" "$folder/without"; exit 1; }
