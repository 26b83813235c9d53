#!/bin/sh
# on_linked_driver.sh FAKE PROGRAM: a program that is linked with the driver's library, with the fake one in its place.
fake=$1
shift
[ -x "$1" ] || { echo "skipped: $1 is not built: ninja gpu"; exit 77; }
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
ln -s "$fake" "$folder/libcuda.so.1"
export LD_LIBRARY_PATH="$folder"
"$@" "~[fake]~[refused]"
