#!/bin/sh
# on_linked_driver.sh FAKE PROGRAM: a program that is linked with the driver's library, with the fake one in its place. In the small
# form some of it.
fake=$1
shift
[ -x "$1" ] || { echo "skipped: $1 is not built: ninja gpu"; exit 77; }
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
ln -s "$fake" "$folder/libcuda.so.1"
cases="~[fake]~[refused]"
[ -z "$WEFT_TEST_SMALL" ] || cases="[input]~[fake],[memory]~[fake],[failures]~[fake],[windows]"
export LD_LIBRARY_PATH="$folder"
"$@" "$cases"
