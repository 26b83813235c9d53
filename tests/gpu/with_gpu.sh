#!/bin/sh
# with_gpu.sh GPU-PRESENT COMMAND...: runs the command if there is a GPU; else says why not, with status 77: skipped.
present=$1
shift
"$present" || exit $?
exec "$@"
