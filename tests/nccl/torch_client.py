# torch_client.py LIBRARY: torch with this library in place of NVIDIA's, as far as torch calls NCCL without a GPU.
import ctypes
import sys

import torch


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def main():
    library = ctypes.CDLL(sys.argv[1])
    library.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, UniqueId, ctypes.c_int]
    assert torch.cuda.nccl.version() == (2, 30, 7), torch.cuda.nccl.version()
    assert torch.distributed.is_nccl_available()
    # Another library's id would be refused here.
    unique_id, comm = UniqueId(), ctypes.c_void_p()
    text = torch.cuda.nccl.unique_id()
    ctypes.memmove(ctypes.byref(unique_id), text, 128)
    assert library.ncclCommInitRank(ctypes.byref(comm), 1, unique_id, 0) == 0, "torch made the id with another library"
    values = torch.full([1000], 3.0)
    address = ctypes.c_void_p(values.data_ptr())
    library.ncclAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int] + [ctypes.c_void_p] * 2
    assert library.ncclAllReduce(address, address, values.numel(), 7, 0, comm, None) == 0
    assert bool((values == 3).all())
    library.ncclCommDestroy.argtypes = [ctypes.c_void_p]
    assert library.ncclCommDestroy(comm) == 0
    print(f"torch {torch.__version__} calls Weft's library")


if __name__ == "__main__":
    main()
