# cupy_client.py LIBRARY: cupy's wrapper of NCCL on host memory; two ranks that are processes.
import multiprocessing
import sys

import numpy
from cupy_backends.cuda.libs import nccl

COUNT, RANKS = 1000, 2


def mapped(part):
    with open("/proc/self/maps") as file:
        return {line.split()[-1] for line in file if part in line}


def rank_main(rank, unique_id, outcomes):
    comm = nccl.NcclCommunicator(RANKS, unique_id, rank)
    assert (comm.rank_id(), comm.size()) == (rank, RANKS)
    try:
        comm.device_id()
    except nccl.NcclError as error:
        assert "NCCL_ERROR_INVALID_USAGE" in str(error), error
    else:
        raise AssertionError("a rank without a GPU has a device")
    own, result = numpy.full(COUNT, rank + 1, numpy.float32), numpy.zeros(COUNT, numpy.float32)
    everyone = numpy.zeros(RANKS * COUNT, numpy.float32)
    at = lambda array: array.ctypes.data  # noqa: E731
    comm.allReduce(at(own), at(result), COUNT, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, 0)
    assert (result == 3).all()
    comm.reduce(at(own), at(result), COUNT, nccl.NCCL_FLOAT32, nccl.NCCL_MAX, 1, 0)
    assert rank == 0 or (result == 2).all()
    comm.broadcast(at(own), at(result), COUNT, nccl.NCCL_FLOAT32, 1, 0)
    assert (result == 2).all()
    comm.bcast(at(result), COUNT, nccl.NCCL_FLOAT32, 0, 0)
    comm.allGather(at(own), at(everyone), COUNT, nccl.NCCL_FLOAT32, 0)
    assert (everyone == numpy.repeat([1, 2], COUNT)).all()
    comm.reduceScatter(at(everyone), at(result), COUNT, nccl.NCCL_FLOAT32, nccl.NCCL_PROD, 0)
    assert (result == (rank + 1) ** 2).all()
    nccl.groupStart()
    comm.send(at(own), COUNT, nccl.NCCL_FLOAT32, 1 - rank, 0)
    comm.recv(at(result), COUNT, nccl.NCCL_FLOAT32, 1 - rank, 0)
    nccl.groupEnd()
    assert (result == 2 - rank).all()
    comm.check_async_error()
    comm.destroy()
    outcomes.put(rank)


def main():
    assert nccl.get_version() == 23007
    libraries = mapped("libnccl.so")
    assert libraries == {sys.argv[1]}, libraries
    context = multiprocessing.get_context("spawn")
    outcomes = context.Queue()
    unique_id = nccl.get_unique_id()
    ranks = [context.Process(target=rank_main, args=(rank, unique_id, outcomes)) for rank in range(RANKS)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    assert [process.exitcode for process in ranks] == [0] * RANKS

    # cupy names the devices, so ranks in host memory are no substitute.
    try:
        nccl.NcclCommunicator.initAll(RANKS)
    except nccl.NcclError as error:
        assert "NCCL_ERROR_INVALID_USAGE" in str(error), error
    else:
        raise AssertionError("devices that do not exist were accepted")
    print("cupy's wrapper made its calls")


if __name__ == "__main__":
    main()
