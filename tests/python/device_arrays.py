"""Arrays and streams of CUDA devices for tests, on the fake driver. It is called by ctypes, as cupy or torch would do."""
import ctypes
import os

import weft
from ranks import on_ranks

cuda = ctypes.CDLL(os.environ["WEFT_CUDA_LIBRARY"])


def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    assert result == 0, f"{name} returned {result}"


def use(device):
    """Makes the device's primary context current in this thread."""
    context, number = ctypes.c_void_p(), ctypes.c_int()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(number), device)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
    call("cuCtxSetCurrent", context)


def copy(target, source, size):
    call("cuMemcpy", *(ctypes.c_uint64(each) for each in (target, source, size)))


class Floats:
    """Device memory with elements, as cupy's arrays have them."""

    def __init__(self, device, values):
        self.memory = weft.DeviceMemory(4 * len(values))
        self.device = type("Device", (), {"id": device})
        self.dtype = "float32"
        self.__cuda_array_interface__ = {
            "shape": (len(values),),
            "typestr": "<f4",
            "data": (self.memory.address, False),
            "version": 3,
        }
        self.host = (ctypes.c_float * len(values))(*values)
        copy(self.memory.address, ctypes.addressof(self.host), ctypes.sizeof(self.host))

    def values(self):
        copy(ctypes.addressof(self.host), self.memory.address, ctypes.sizeof(self.host))
        return list(self.host)


def read(x):
    """The float32 elements of an array of another library."""
    facts = x.__cuda_array_interface__
    assert facts["typestr"] == "<f4"
    host = (ctypes.c_float * facts["shape"][0])()
    copy(ctypes.addressof(host), facts["data"][0], ctypes.sizeof(host))
    return list(host)


def write(x, values):
    host = (ctypes.c_float * len(values))(*values)
    copy(x.__cuda_array_interface__["data"][0], ctypes.addressof(host), ctypes.sizeof(host))


class CudaStream:
    """A stream by the protocol of cuda.core."""

    def __init__(self):
        self.handle = ctypes.c_void_p()
        call("cuStreamCreateWithPriority", ctypes.byref(self.handle), 1, 0)

    def __cuda_stream__(self):
        return (0, self.handle.value)

    def wait(self):
        call("cuStreamSynchronize", self.handle)


def on_devices(count, body):
    """body(comm) in a thread for each rank, whose device is current there."""

    def run(comm):
        use(comm.rank)
        return body(comm)

    return on_ranks(count, run, devices=list(range(count)))
