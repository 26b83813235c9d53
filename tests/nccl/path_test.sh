#!/bin/sh
# path_test.sh WEFT LIBRARY: `weft nccl-path` prints the folder of the library, and that folder holds no other one.
set -eu
weft=$1 library=$2
folder=$("$weft" nccl-path)
[ "$folder" = "$(dirname "$library")" ] || { echo "weft nccl-path prints $folder; the library is $library"; exit 1; }
if find "$folder" -maxdepth 1 -name '*.so*' | grep -v '/libnccl\.so'; then echo "there are other libraries in $folder"; exit 1; fi
if "$weft" nccl-path >/dev/full 2>&1; then echo "weft nccl-path does not check its output"; exit 1; fi
