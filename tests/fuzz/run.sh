#!/bin/sh
# run.sh PROGRAM ARGUMENTS... SEEDS...: runs a fuzz target and leaves no files behind: libFuzzer writes what it finds into the first
# folder that it is given. Of an input that fails it prints the bytes.
set -u
program=$1
shift
# In memory, where there is such a folder: targets may make trees of small files.
[ ! -w /dev/shm ] || TMPDIR=/dev/shm
export TMPDIR="${TMPDIR:-/tmp}"
found=$(mktemp -d) || exit 1
trap 'rm -rf "$found"' EXIT
trap 'exit 1' INT TERM
TMPDIR=$found
mkdir "$found/corpus"
"$program" "-artifact_prefix=$found/" "$found/corpus" "$@" && exit
for input in "$found"/*-*; do
    [ ! -f "$input" ] || { echo "the input that failed, in base64:"; base64 "$input"; }
done
exit 1
