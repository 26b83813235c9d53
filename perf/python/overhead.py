#!/usr/bin/env python3
"""overhead.py: the time of Communicator.all_reduce above that of weftAllReduce, for 8 bytes in place.

    ninja -C build perf/python/libcall_loop.so python/weft/all
    PYTHONPATH=build/python build/tools/weft run -n 2 python3 perf/python/overhead.py build/perf/python/libcall_loop.so

Both sides call in one process, in turn: a batch from C, then a batch from Python, each behind a barrier. A row is the
median over the batches. One rank alone shows the call without the wait for another rank.
"""
import array
import ctypes
import statistics
import sys
import time

import weft

BATCHES = 200
CALLS = 500
WARM_UP = 3  # batches


def objects():
    """The arguments to compare: one of the standard library, and one of each library that is installed."""
    yield "array.array", array.array("f", [0, 0])
    try:
        import numpy
    except ImportError:
        return
    yield "numpy", numpy.zeros(2, numpy.float32)


def seconds_of(comm, x):
    begin = time.perf_counter()
    for _ in range(CALLS):
        comm.all_reduce(x)
    return time.perf_counter() - begin


def main():
    loop = ctypes.CDLL(sys.argv[1])
    loop.seconds_of.restype = ctypes.c_double
    elements = (ctypes.c_float * 2)()
    comm = weft.init()
    if loop.join():
        raise SystemExit("the C side cannot join")
    for name, x in objects():
        from_c, from_python = [], []
        for batch in range(WARM_UP + BATCHES):
            comm.barrier()
            c = loop.seconds_of(elements, CALLS)
            if c < 0:
                raise SystemExit("a call from C failed")
            comm.barrier()
            python = seconds_of(comm, x)
            if batch >= WARM_UP:
                from_c.append(1e6 * c / CALLS)
                from_python.append(1e6 * python / CALLS)
        if comm.rank == 0:
            c, python = statistics.median(from_c), statistics.median(from_python)
            print(
                f"{comm.size} ranks, {name}: C {c:.2f} us, Python {python:.2f} us, "
                f"{python - c:+.2f} us, ratio {python / c:.2f}"
            )
    loop.leave()
    comm.close()


if __name__ == "__main__":
    main()
