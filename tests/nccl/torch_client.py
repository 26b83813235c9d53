# torch_client.py LIBRARY: torch with this library in place of NVIDIA's, as far as torch calls NCCL without a GPU.
# Without LD_PRELOAD torch has NVIDIA's library, and the program opens this one beside it, as vLLM and SGLang do.
import ctypes
import os
import subprocess
import sys

import torch


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def main():
    library = ctypes.CDLL(sys.argv[1])
    pointer, number = ctypes.c_void_p, ctypes.c_int
    library.ncclCommInitRank.argtypes = [ctypes.POINTER(pointer), number, UniqueId, number]
    library.ncclAllReduce.argtypes = [pointer, pointer, ctypes.c_size_t, number, number, pointer, pointer]
    library.ncclCommDestroy.argtypes = [pointer]
    assert torch.distributed.is_nccl_available()
    unique_id, comm = UniqueId(), pointer()
    replaced = "LD_PRELOAD" in os.environ
    if replaced:
        # Another library's id would be refused below.
        assert torch.cuda.nccl.version() == (2, 30, 7), torch.cuda.nccl.version()
        ctypes.memmove(ctypes.byref(unique_id), torch.cuda.nccl.unique_id(), 128)
    else:
        assert library.ncclGetUniqueId(ctypes.byref(unique_id)) == 0
    assert library.ncclCommInitRank(ctypes.byref(comm), 1, unique_id, 0) == 0, "torch made the id with another library"
    values = torch.full([1000], 3.0)
    assert library.ncclAllReduce(values.data_ptr(), values.data_ptr(), values.numel(), 7, 0, comm, None) == 0
    assert bool((values == 3).all())
    assert library.ncclCommDestroy(comm) == 0
    if not replaced:
        return
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run([sys.executable, *sys.argv], env=environment, check=True)
    print(f"torch {torch.__version__} calls Weft's library")


if __name__ == "__main__":
    main()
