#!/bin/sh
# kernel_names_test.sh NAMES KIND NM OBJECT...: every kernel that `NAMES KIND` prints is in one of the objects. The fake
# driver cannot see this: its kernels are the bodies as C++.
names=$1 kind=$2 nm=$3
shift 3
for object; do
    [ -f "$object" ] || { echo "skipped: $object is not built: ninja gpu"; exit 77; }
done
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
"$names" "$kind" | sort -u >"$folder/wanted" || exit 1
for object; do "$nm" "$object" || exit 1; done | awk '$2 == "T" { print $3 }' | sort -u >"$folder/found"
least=20
[ "$kind" != perf ] || least=2
[ "$(wc -l <"$folder/wanted")" -ge "$least" ] || { echo "$names $kind tells too few names"; exit 1; }
if [ -n "$(comm -23 "$folder/wanted" "$folder/found")" ]; then
    echo "not in the device code:"
    comm -23 "$folder/wanted" "$folder/found"
    exit 1
fi
# The check can fail: a kernel that is not there is missed.
echo weft_no_such_kernel | cat - "$folder/wanted" | sort >"$folder/wrong"
[ "$(comm -23 "$folder/wrong" "$folder/found")" = weft_no_such_kernel ] || { echo "a kernel that is not there is not missed"; exit 1; }
