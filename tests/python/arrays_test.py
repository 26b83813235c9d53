"""Which objects are arrays, and what a refused one is called."""
import array
import ctypes
import unittest

import numpy as np
import weft

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None
try:
    import torch
except ImportError:
    torch = None
try:
    import jax.numpy as jax
except ImportError:
    jax = None


class OneRank(unittest.TestCase):
    def setUp(self):
        self.comm = weft.init_all(1)[0]

    def tearDown(self):
        self.comm.close()

    def refused(self, identifier, call, *words):
        with self.assertRaises(weft.InvalidArgumentError) as caught:
            call()
        self.assertEqual(caught.exception.id, identifier, caught.exception)
        self.assertTrue(caught.exception.remedy)
        for word in words:
            self.assertIn(word, str(caught.exception))


class Refused(OneRank):
    def test_a_dtype_that_weft_lacks_is_named(self):
        for dtype in ("int16", "complex64", "float128", "U3", ">f4"):
            with self.subTest(dtype=dtype):
                self.refused("python.dtype", lambda: self.comm.all_reduce(np.zeros(2, dtype)), str(np.dtype(dtype)))

    def test_strides_of_a_slice_are_named(self):
        self.refused("python.strides", lambda: self.comm.all_reduce(np.zeros((4, 4))[:, 1]), "(32,)")
        self.refused("python.strides", lambda: self.comm.all_reduce(np.zeros((3, 4)).T), "(8, 32)")

    def test_a_slice_of_rows_is_contiguous(self):
        self.comm.all_reduce(np.zeros((4, 4))[1:3])

    def test_read_only_memory_is_refused_where_it_is_written(self):
        self.refused("python.read-only", lambda: self.comm.all_reduce(memoryview(b"abcd")))
        self.comm.all_reduce(b"abcd", out=bytearray(4))

    def test_an_object_without_memory_is_named(self):
        self.refused("python.buffer", lambda: self.comm.all_reduce([1, 2]), "list")
        self.refused("python.buffer", lambda: self.comm.all_reduce(None), "NoneType")

    def test_sizes_and_dtypes_of_two_arrays_are_compared(self):
        x = np.zeros(4, np.float32)
        self.refused("python.size", lambda: self.comm.all_reduce(x, out=np.zeros(5, np.float32)), "5", "4")
        self.refused("python.dtype", lambda: self.comm.all_reduce(x, out=np.zeros(4)), "float32", "float64")

    def test_parts_beyond_an_array_are_refused(self):
        x = np.zeros(4, np.float32)
        self.refused("python.size", lambda: self.comm.all_gather_v(x, [4], displacements=[1], out=np.zeros(4, "f4")))
        self.refused("python.size", lambda: self.comm.all_gather_v(x, [2, 2]))
        self.refused("python.size", lambda: self.comm.all_gather_v(x, [-1], out=x))

    def test_an_unknown_reduction_or_root_is_named(self):
        self.refused("python.reduction", lambda: self.comm.all_reduce(np.zeros(1), "mean"), "mean")
        self.refused("python.reduction", lambda: self.comm.all_reduce(np.zeros(1), 7), "7")
        self.refused("argument.rank", lambda: self.comm.broadcast(np.zeros(1), root=1))

    def test_a_sum_of_bool_is_refused(self):
        self.refused("python.dtype", lambda: self.comm.all_reduce(np.zeros(2, bool)), "bool")

    def test_a_stream_of_a_wrong_type_is_named(self):
        self.refused("python.stream", lambda: self.comm.all_reduce(np.zeros(1), stream="fast"), "str")

    def test_a_refused_array_is_not_held(self):
        memory = bytearray(8)
        for _ in range(3):
            self.refused("python.size", lambda: self.comm.all_reduce(memory, out=bytearray(9)))
        memory.append(1)  # it would raise BufferError

    def test_an_array_is_held_by_no_finished_call(self):
        memory = bytearray(8)
        self.comm.all_reduce(memory)
        memory.append(1)


class Protocols(OneRank):
    def test_array_interface_of_any_object_is_used(self):
        memory = array.array("f", [2, 3])

        class Interface:
            __array_interface__ = {
                "shape": (2,),
                "typestr": "<f4",
                "data": (memory.buffer_info()[0], False),
                "version": 3,
            }

        x = Interface()
        self.assertIs(self.comm.all_reduce(x), x)

    def test_strides_without_their_shape_are_refused(self):
        class Interface:
            __array_interface__ = {
                "shape": (2, 2),
                "strides": (4,),
                "typestr": "<f4",
                "data": (4096, False),
                "version": 3,
            }

        self.refused("python.strides", lambda: self.comm.all_reduce(Interface()))

    def test_dlpack_of_numpy_is_used(self):
        class Exporter:
            def __init__(self, memory):
                self.memory = memory

            def __dlpack__(self, **arguments):
                return self.memory.__dlpack__()

            def __dlpack_device__(self):
                return self.memory.__dlpack_device__()

        out = np.zeros(3, np.float32)
        self.comm.all_reduce(Exporter(np.arange(3, dtype=np.float32)), out=Exporter(out))
        np.testing.assert_array_equal(out, [0, 1, 2])
        self.refused("python.dtype", lambda: self.comm.all_reduce(Exporter(np.zeros(2, np.int16))), "16 bits")
        self.refused("python.strides", lambda: self.comm.all_reduce(Exporter(np.zeros((2, 4))[:, 0])))

    def test_a_dlpack_device_that_is_no_cuda_device_is_named(self):
        class Metal:
            def __dlpack__(self, **arguments):
                raise AssertionError("it must not be called")

            def __dlpack_device__(self):
                return (8, 0)

        self.refused("python.device", lambda: self.comm.all_reduce(Metal()), "8")

    def test_an_exporter_that_refuses_is_quoted(self):
        class Gradient:
            def __dlpack__(self, **arguments):
                raise BufferError("use detach()")

            def __dlpack_device__(self):
                return (1, 0)

        self.refused("python.buffer", lambda: self.comm.all_reduce(Gradient()), "use detach()")

    def test_arrays_on_two_devices_are_refused(self):
        class Cuda:
            __cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3}

        self.refused("python.device", lambda: self.comm.all_reduce(np.zeros(4, "f4"), out=Cuda()), "cuda:0", "host")

    def test_results_of_a_derived_class_are_arrays_of_its_library(self):
        class Matrix(np.ndarray):
            pass

        x = np.ones((2, 3), np.float32).view(Matrix)
        gathered = self.comm.all_gather(x)
        self.assertIs(type(gathered), np.ndarray)
        self.assertEqual((gathered.shape, gathered.dtype), ((1, 2, 3), np.float32))

    def test_ctypes_arrays_are_buffers(self):
        self.comm.all_reduce((ctypes.c_float * 4)())
        for kind, value in ((ctypes.c_float, 1.5), (ctypes.c_int64, 7), (ctypes.c_uint8, 3)):
            gathered = self.comm.all_gather((kind * 2)(value, value))
            self.assertEqual(gathered.tolist(), [value] * 2)
        rows = ((ctypes.c_float * 2) * 3)((1, 2), (3, 4), (5, 6))
        self.assertEqual(self.comm.all_gather(rows).tolist(), [1, 2, 3, 4, 5, 6])
        self.assertEqual(self.comm.reduce_scatter(rows).tolist(), [1, 2, 3, 4, 5, 6])
        self.assertEqual(self.comm.all_gather(ctypes.c_float(1.5)).tolist(), [1.5])
        self.refused("python.size", lambda: self.comm.reduce_scatter(ctypes.c_float()))
        swapped = (ctypes.c_float.__ctype_be__ * 2)()
        self.refused("python.out", lambda: self.comm.all_gather(swapped))

    def test_results_of_no_element_keep_their_type(self):
        for x in (array.array("f"), memoryview(array.array("d")), memoryview(np.zeros(0, np.int32))):
            gathered = self.comm.all_gather_v(x, [0])
            self.assertEqual((gathered.format, len(gathered)), (memoryview(x).format, 0))
            self.assertEqual(len(self.comm.all_to_all_v(x, [0], [0])), 0)

    def test_host_memory_is_a_buffer(self):
        memory = weft.HostMemory(4096)
        x = np.frombuffer(memory, np.float32)
        x[:] = 1
        del memory
        self.comm.all_reduce(x)
        self.assertEqual(x.sum(), 1024)

    def test_device_memory_needs_a_device(self):
        with self.assertRaises(weft.Error):
            weft.DeviceMemory(4096)


@unittest.skipUnless(ml_dtypes, "ml_dtypes is not installed")
class MlDtypes(OneRank):
    def test_bfloat16_and_float8_of_ml_dtypes_are_reduced(self):
        for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
            x = np.array([1, 2, 3], dtype)
            np.testing.assert_array_equal(self.comm.all_reduce(x), np.array([1, 2, 3], dtype))
            self.assertIn("one_shot", self.comm.explain(4, dtype))

    def test_other_float8_are_refused(self):
        self.refused(
            "python.dtype",
            lambda: self.comm.all_reduce(np.zeros(2, ml_dtypes.float8_e4m3b11fnuz)),
            "float8_e4m3b11fnuz",
        )


@unittest.skipUnless(torch, "torch is not installed")
class Torch(OneRank):
    def test_tensors_are_used_without_a_copy(self):
        for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8):
            x = torch.ones(4, dtype=dtype)
            self.assertIs(self.comm.all_reduce(x), x)
            self.assertEqual(tuple(self.comm.all_gather(x).shape), (1, 4))

    def test_a_transposed_tensor_is_refused(self):
        self.refused("python.strides", lambda: self.comm.all_reduce(torch.ones(2, 3).t()))

    def test_a_tensor_with_gradients_is_quoted(self):
        self.refused("python.buffer", lambda: self.comm.all_reduce(torch.ones(2, requires_grad=True)), "detach")


@unittest.skipUnless(jax, "jax is not installed")
class Jax(OneRank):
    def test_immutable_arrays_are_read_and_not_written(self):
        x = jax.arange(4, dtype="float32")
        out = np.zeros(4, np.float32)
        np.testing.assert_array_equal(self.comm.all_reduce(x, out=out), [0, 1, 2, 3])
        self.refused("python.read-only", lambda: self.comm.all_reduce(x))
        self.refused("python.out", lambda: self.comm.all_gather(x))


if __name__ == "__main__":
    unittest.main()
