#!/usr/bin/env bash
# gpus_here_test.sh SOURCE: gpus_here of tools/common.sh names each kind of GPU once, as meson takes them, and ends well without.
set -euo pipefail
cd "$1"
. tools/common.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
check() {
    local found
    found=$(PATH=$folder:$PATH gpus_here)
    [ "$found" = "$1" ] || { echo "gpus_here_test: \`$found\` in the place of \`$1\`"; exit 1; }
}
says() {
    printf '#!/bin/sh\nprintf "%s"\nexit %s\n' "$1" "${2:-0}" >"$folder/nvidia-smi"
    chmod +x "$folder/nvidia-smi"
}
says '9.0\n'
check 90
says '12.0\n8.0\n12.0\n9.0\n'
check 80,90,120
says 'NVIDIA-SMI has failed\n' 9
check ''
printf '#!/bin/sh\nexit 127\n' >"$folder/nvidia-smi"
check ''
