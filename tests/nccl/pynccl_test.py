#!/usr/bin/env python3
# pynccl_test.py LIBRARY RANKS: a client in the manner of vLLM's pynccl: it opens libnccl.so.2 by path, binds functions by
# name with ctypes, and exchanges the unique id itself. Buffers are host memory.
import ctypes
import multiprocessing
import os
import subprocess
import sys

LIBRARY, RANKS = sys.argv[1], int(sys.argv[2])
COUNT = 1000
FLOAT32, INT64 = 7, 4
SUM, MAX = 0, 2


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


POINTER, INT, SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
# vLLM's table: a function that is missing is an error. Those of OPTIONAL may be missing.
FUNCTIONS = {
    "ncclGetErrorString": (ctypes.c_char_p, [INT]),
    "ncclGetVersion": (INT, [ctypes.POINTER(INT)]),
    "ncclGetUniqueId": (INT, [ctypes.POINTER(UniqueId)]),
    "ncclCommInitRank": (INT, [ctypes.POINTER(POINTER), INT, UniqueId, INT]),
    "ncclAllReduce": (INT, [POINTER, POINTER, SIZE, INT, INT, POINTER, POINTER]),
    "ncclReduce": (INT, [POINTER, POINTER, SIZE, INT, INT, INT, POINTER, POINTER]),
    "ncclAllGather": (INT, [POINTER, POINTER, SIZE, INT, POINTER, POINTER]),
    "ncclReduceScatter": (INT, [POINTER, POINTER, SIZE, INT, INT, POINTER, POINTER]),
    "ncclBroadcast": (INT, [POINTER, POINTER, SIZE, INT, INT, POINTER, POINTER]),
    "ncclSend": (INT, [POINTER, SIZE, INT, INT, POINTER, POINTER]),
    "ncclRecv": (INT, [POINTER, SIZE, INT, INT, POINTER, POINTER]),
    "ncclGroupStart": (INT, []),
    "ncclGroupEnd": (INT, []),
    "ncclCommDestroy": (INT, [POINTER]),
    "ncclCommAbort": (INT, [POINTER]),
    "ncclCommWindowRegister": (INT, [POINTER, POINTER, SIZE, ctypes.POINTER(POINTER), INT]),
    "ncclCommWindowDeregister": (INT, [POINTER, POINTER]),
    "ncclCommSuspend": (INT, [POINTER, INT]),
    "ncclCommResume": (INT, [POINTER]),
}
OPTIONAL = {
    "ncclCommQueryProperties": (INT, [POINTER, POINTER]),
    "ncclGetLastError": (ctypes.c_char_p, [POINTER]),
    "ncclMemAlloc": (INT, [ctypes.POINTER(POINTER), SIZE]),
    "ncclMemFree": (INT, [POINTER]),
}


class Nccl:
    def __init__(self):
        library = ctypes.CDLL(LIBRARY)
        for name, (result, arguments) in (FUNCTIONS | OPTIONAL).items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def check(self, code):
        if code != 0:
            raise RuntimeError(f"{self.ncclGetErrorString(code).decode()}: {self.ncclGetLastError(None).decode()}")


def rank_main(rank, ids):
    nccl = Nccl()
    unique_id, comm = UniqueId(), POINTER()
    if rank == 0:
        nccl.check(nccl.ncclGetUniqueId(ctypes.byref(unique_id)))
        for _ in range(RANKS - 1):
            ids.put(bytes(unique_id.internal))
    else:
        ctypes.memmove(ctypes.byref(unique_id), ids.get(), 128)
    nccl.check(nccl.ncclCommInitRank(ctypes.byref(comm), RANKS, unique_id, rank))

    floats, longs = ctypes.c_float * COUNT, ctypes.c_int64 * COUNT
    everyone = ctypes.c_int64 * (COUNT * RANKS)
    values, result = floats(*[rank + 1] * COUNT), floats()
    nccl.check(nccl.ncclAllReduce(values, result, COUNT, FLOAT32, SUM, comm, None))
    assert list(result) == [RANKS * (RANKS + 1) / 2] * COUNT
    nccl.check(nccl.ncclReduce(values, result, COUNT, FLOAT32, MAX, 0, comm, None))
    assert rank != 0 or list(result) == [RANKS] * COUNT
    own, gathered = longs(*[rank] * COUNT), everyone()
    nccl.check(nccl.ncclAllGather(own, gathered, COUNT, INT64, comm, None))
    assert list(gathered) == [r for r in range(RANKS) for _ in range(COUNT)]
    nccl.check(nccl.ncclReduceScatter(gathered, own, COUNT, INT64, SUM, comm, None))
    assert list(own) == [rank * RANKS] * COUNT
    nccl.check(nccl.ncclBroadcast(own, own, COUNT, INT64, RANKS - 1, comm, None))
    assert list(own) == [(RANKS - 1) * RANKS] * COUNT
    received = floats()
    nccl.check(nccl.ncclGroupStart())
    nccl.check(nccl.ncclSend(values, COUNT, FLOAT32, (rank + 1) % RANKS, comm, None))
    nccl.check(nccl.ncclRecv(received, COUNT, FLOAT32, (rank - 1) % RANKS, comm, None))
    nccl.check(nccl.ncclGroupEnd())
    assert list(received) == [(rank - 1) % RANKS + 1] * COUNT

    # As the allocator of vLLM's symmetric memory does.
    memory, window = POINTER(), POINTER()
    nccl.check(nccl.ncclMemAlloc(ctypes.byref(memory), 4096))
    nccl.check(nccl.ncclCommWindowRegister(comm, memory, 4096, ctypes.byref(window), 1))
    nccl.check(nccl.ncclCommWindowDeregister(comm, window))
    nccl.check(nccl.ncclMemFree(memory))

    assert nccl.ncclCommSuspend(comm, 1) == 5 and b"ncclCommSuspend" in nccl.ncclGetLastError(comm)
    try:
        nccl.check(nccl.ncclAllReduce(None, result, COUNT, FLOAT32, SUM, comm, None))
    except RuntimeError as error:
        assert "sendbuff" in str(error)
    else:
        raise AssertionError("a null buffer was accepted")
    nccl.check(nccl.ncclCommDestroy(comm))


def version():
    number = INT()
    nccl = Nccl()
    nccl.check(nccl.ncclGetVersion(ctypes.byref(number)))
    return number.value


def main():
    context = multiprocessing.get_context("spawn")
    ids = context.Queue()
    ranks = [context.Process(target=rank_main, args=(rank, ids)) for rank in range(RANKS)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    wrong = [rank for rank, process in enumerate(ranks) if process.exitcode != 0]
    assert version() == 23007
    # With LD_PRELOAD a program that opens the bare name gets the same library.
    bare = [sys.executable, "-c", "import ctypes; v = ctypes.c_int(); ctypes.CDLL('libnccl.so.2').ncclGetVersion(ctypes.byref(v)); print(v.value)"]
    for variable, value in (("LD_LIBRARY_PATH", os.path.dirname(LIBRARY)), ("LD_PRELOAD", LIBRARY)):
        found = subprocess.run(bare, env=os.environ | {variable: value}, check=True, capture_output=True, text=True).stdout
        assert found == "23007\n", (variable, found)
    print(f"{RANKS} ranks, failed: {wrong or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
