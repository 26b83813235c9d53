"""Arrays and streams on CUDA devices, on the fake driver. The driver is called by ctypes, as cupy or torch would do."""
import ctypes
import os
import unittest

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


class Devices(unittest.TestCase):
    def test_each_rank_knows_its_device(self):
        self.assertGreaterEqual(weft.device_count(), 2)
        self.assertEqual(on_devices(2, lambda comm: comm.device), [0, 1])

    def test_a_setting_names_the_device(self):
        use(0)
        with weft.init(device=1) as comm:
            self.assertEqual(comm.device, 1)
            use(1)  # for the allocation
            x = Floats(1, [2.0])
            comm.all_reduce(x)
        use(0)
        with weft.init(device=False) as comm, weft.init() as other:
            self.assertEqual(other.device, 0)
            with self.assertRaisesRegex(weft.InvalidUsageError, "no device"):
                comm.device
            with self.assertRaises(weft.Error) as caught:
                comm.all_reduce(Floats(0, [1.0]))
            self.assertEqual(caught.exception.id, "gpu.unavailable")
        for device, name in ((99, "argument.device"), (-5, "argument.config")):
            with self.assertRaises(weft.InvalidArgumentError) as caught:
                weft.init(device=device)
            self.assertEqual(caught.exception.id, name)
        with self.assertRaises(TypeError):
            weft.init(device=True)

    def test_calls_are_enqueued_on_streams_given_by_object_and_address(self):
        def body(comm):
            stream = CudaStream()
            x = Floats(comm.rank, [comm.rank + 1.0, 2.0])
            self.assertIs(comm.all_reduce(x, stream=stream), x)
            comm.all_reduce(x, "max", stream=stream.handle.value)
            stream.wait()
            return x.values()

        self.assertEqual(on_devices(2, body), [[3, 4]] * 2)

    def test_a_scalar_on_the_device_is_read_when_the_call_runs(self):
        def body(comm):
            stream = CudaStream()
            factor, x = Floats(comm.rank, [comm.rank + 0.5]), Floats(comm.rank, [4.0])
            with comm.scaled_sum(factor) as op:
                comm.all_reduce(x, op, stream=stream)
                stream.wait()
            return x.values()

        self.assertEqual(on_devices(2, body), [[8]] * 2)

    def test_device_memory_is_bytes_and_can_be_registered(self):
        def body(comm):
            stream = CudaStream()
            memory = weft.DeviceMemory(4)
            self.assertEqual(len(memory), 4)
            with comm.register(memory):
                host = (ctypes.c_ubyte * 4)(*[comm.rank + 1] * 4)
                copy(memory.address, ctypes.addressof(host), 4)
                comm.all_reduce(memory, stream=stream)
                stream.wait()
            copy(ctypes.addressof(host), memory.address, 4)
            return list(host)

        self.assertEqual(on_devices(2, body), [[3] * 4] * 2)

    def test_arrays_on_two_devices_are_refused(self):
        use(0)
        x, out = Floats(0, [1.0]), Floats(1, [1.0])
        with weft.init() as comm, self.assertRaises(weft.InvalidArgumentError) as caught:
            comm.all_reduce(x, out=out)
        self.assertEqual(caught.exception.id, "python.device")
        self.assertIn("cuda:0", str(caught.exception))
        self.assertIn("cuda:1", str(caught.exception))

    def test_a_stream_of_host_memory_is_refused_for_device_memory(self):
        use(0)
        with weft.init() as comm, weft.Stream() as stream:
            x = Floats(0, [1.0])
            comm.all_reduce(x)  # the thread that joins has this thread's device
            with self.assertRaises(weft.Error) as caught:
                comm.all_reduce(x, stream=stream)
        self.assertEqual(caught.exception.id, "memory.kind")


if __name__ == "__main__":
    unittest.main()
