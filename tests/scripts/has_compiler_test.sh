#!/usr/bin/env bash
# has_compiler_test.sh SOURCE: has_compiler of tools/common.sh distinguishes toolkits that can build Weft from older
# ones and none.
set -uo pipefail
cd "$1" || exit 1
. tools/common.sh
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
fail() { echo "has_compiler_test: $1"; exit 1; }

has_compiler "$folder" && fail "there is no nvcc"
mkdir "$folder/bin"
says() {
    printf '#!/bin/sh\necho "nvcc: NVIDIA (R) Cuda compiler driver"\necho "Cuda compilation tools, release %s, V%s.48"\n' "$1" "$1" >"$folder/bin/nvcc"
    chmod +x "$folder/bin/nvcc"
}
for release in 12.4 12.10 13.0; do says "$release"; has_compiler "$folder" || fail "$release is new enough"; done
for release in 11.8 12.0 12.3; do says "$release"; has_compiler "$folder" && fail "$release is too old"; done
printf '#!/bin/sh\necho "no release"\n' >"$folder/bin/nvcc"
has_compiler "$folder" && fail "it says no release"
exit 0
