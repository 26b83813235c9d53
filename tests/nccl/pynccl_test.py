#!/usr/bin/env python3
# pynccl_test.py LIBRARY vllm|sglang RANKS: a client in the manner of vLLM's or SGLang's pynccl. It opens libnccl.so.2 by
# path, binds functions by name with ctypes, and exchanges the unique id itself. Buffers are host memory.
import ctypes
import multiprocessing
import os
import subprocess
import sys

LIBRARY, MANNER, RANKS = sys.argv[1], sys.argv[2], int(sys.argv[3])
COUNT = 1000
FLOAT32, INT64 = 7, 4
SUM, MAX = 0, 2


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


# Of NCCL 2.28: 80 bytes.
class Config(ctypes.Structure):
    _fields_ = (
        [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint)]
        + [(name, ctypes.c_int) for name in ("blocking", "cgaClusterSize", "minCTAs", "maxCTAs")]
        + [("netName", ctypes.c_char_p), ("splitShare", ctypes.c_int), ("trafficClass", ctypes.c_int), ("commName", ctypes.c_char_p)]
        + [(name, ctypes.c_int) for name in ("collnetEnable", "CTAPolicy", "shrinkShare", "nvlsCTAs", "nChannelsPerNetPeer", "nvlinkCentricSched")]
    )


POINTER, INT, SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
BOTH = {
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
    "ncclCommWindowRegister": (INT, [POINTER, POINTER, SIZE, ctypes.POINTER(POINTER), INT]),
    "ncclCommWindowDeregister": (INT, [POINTER, POINTER]),
    # vLLM's allocator is compiled and linked; SGLang binds these if windows exist.
    "ncclMemAlloc": (INT, [ctypes.POINTER(POINTER), SIZE]),
    "ncclMemFree": (INT, [POINTER]),
}
# A function that is missing is an error, except ncclCommQueryProperties and ncclGetLastError.
ONE = {
    "vllm": {
        "ncclCommAbort": (INT, [POINTER]),
        "ncclCommSuspend": (INT, [POINTER, INT]),
        "ncclCommResume": (INT, [POINTER]),
        "ncclCommQueryProperties": (INT, [POINTER, POINTER]),
        "ncclGetLastError": (ctypes.c_char_p, [POINTER]),
    },
    "sglang": {
        "ncclCommInitRankConfig": (INT, [ctypes.POINTER(POINTER), INT, UniqueId, INT, ctypes.POINTER(Config)]),
        "ncclGetLastError": (ctypes.c_char_p, [POINTER]),  # for this test
    },
}


class Nccl:
    def __init__(self):
        library = ctypes.CDLL(LIBRARY)
        for name, (result, arguments) in (BOTH | ONE[MANNER]).items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def check(self, code):
        if code != 0:
            raise RuntimeError(f"{self.ncclGetErrorString(code).decode()}: {self.ncclGetLastError(None).decode()}")

    def join(self, comm, unique_id, rank):
        if MANNER == "vllm":
            return self.ncclCommInitRank(ctypes.byref(comm), RANKS, unique_id, rank)
        config = Config(size=80, magic=0xCAFEBEEF, version=22809, commName=b"sglang")
        for name, kind in Config._fields_:
            if kind is ctypes.c_int:
                setattr(config, name, -(2**31))
        assert ctypes.sizeof(config) == 80
        config.blocking, config.minCTAs = 1, 4
        return self.ncclCommInitRankConfig(ctypes.byref(comm), RANKS, unique_id, rank, ctypes.byref(config))


def make_communicator(nccl, rank, ids):
    unique_id, comm = UniqueId(), POINTER()
    if rank == 0:
        nccl.check(nccl.ncclGetUniqueId(ctypes.byref(unique_id)))
        for _ in range(RANKS - 1):
            ids.put(bytes(unique_id.internal))
    else:
        ctypes.memmove(ctypes.byref(unique_id), ids.get(), 128)
    nccl.check(nccl.join(comm, unique_id, rank))
    return comm


def rank_main(rank, ids):
    nccl = Nccl()
    comm = make_communicator(nccl, rank, ids)

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

    if MANNER == "vllm":
        assert nccl.ncclCommSuspend(comm, 1) == 5 and b"ncclCommSuspend" in nccl.ncclGetLastError(comm)
    try:
        nccl.check(nccl.ncclAllReduce(None, result, COUNT, FLOAT32, SUM, comm, None))
    except RuntimeError as error:
        assert "sendbuff" in str(error)
    else:
        raise AssertionError("a null buffer was accepted")
    nccl.check(nccl.ncclCommDestroy(comm))
    if MANNER == "vllm":
        # A rank that gives up ends the calls of all others.
        comm = make_communicator(nccl, rank, ids)
        if rank > 0:
            assert nccl.ncclAllReduce(values, result, COUNT, FLOAT32, SUM, comm, None) == 6, nccl.ncclGetLastError(comm)
        nccl.check(nccl.ncclCommAbort(comm))


def version():
    number = INT()
    nccl = Nccl()
    nccl.check(nccl.ncclGetVersion(ctypes.byref(number)))
    return number.value


# Runs statements on the library that the bare name finds.
def run(statements, **variables):
    environment = {name: value for name, value in os.environ.items() if name not in ("WEFT_DEBUG", "NCCL_DEBUG")} | variables
    program = f"import ctypes; nccl = ctypes.CDLL('libnccl.so.2'); {statements}"
    return subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)


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
    for variable, value in (("LD_LIBRARY_PATH", os.path.dirname(LIBRARY)), ("LD_PRELOAD", LIBRARY)):
        found = run("v = ctypes.c_int(); nccl.ncclGetVersion(ctypes.byref(v)); print(v.value)", **{variable: value}).stdout
        assert found == "23007\n", (variable, found)
    # The log says where memory is. NCCL_DEBUG counts if WEFT_DEBUG is unset.
    allocate = "p = ctypes.c_void_p(); assert nccl.ncclMemAlloc(ctypes.byref(p), 5000) == 0"
    sentence = "the 5000 bytes are host memory"
    place = {"LD_LIBRARY_PATH": os.path.dirname(LIBRARY)}
    assert sentence in run(allocate, **place, NCCL_DEBUG="INFO").stderr
    assert sentence not in run(allocate, **place, NCCL_DEBUG="INFO", WEFT_DEBUG="WARN").stderr
    assert sentence not in run(allocate, **place).stderr
    print(f"{RANKS} ranks, failed: {wrong or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
