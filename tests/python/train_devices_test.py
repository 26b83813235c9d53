"""weft.train.Ddp with arrays on CUDA devices, on the fake driver. Host memory must give the same numbers."""
import ctypes
import gc
import unittest

import numpy as np
import weft
from device_arrays import CudaStream, call, copy, on_devices, use
from ranks import on_ranks


class Numbers:
    """A copy of numpy's array in device memory, as cupy's arrays are. The device becomes current."""

    def __init__(self, device, host):
        use(device)
        self.memory = weft.DeviceMemory(max(host.nbytes, 1))
        self.device = type("Device", (), {"id": device})
        self.shape, self.dtype = host.shape, host.dtype.name
        self.__cuda_array_interface__ = {
            "shape": host.shape,
            "typestr": host.dtype.str,
            "data": (self.memory.address, False),
            "version": 3,
        }
        copy(self.memory.address, host.ctypes.data, host.nbytes)


def get(x):
    """A copy of a device's array in host memory."""
    facts = x.__cuda_array_interface__
    host = np.empty(facts["shape"], facts["typestr"])
    if host.size:
        copy(host.ctypes.data, facts["data"][0], host.nbytes)
    return host


class Memory:
    """The arrays of a rank: in host memory, or on the device with the rank's number."""

    def __init__(self, rank, on_device):
        self.rank = rank
        self.stream = CudaStream() if on_device else None
        self.sent = []  # until the stream has read them

    def array(self, host):
        return Numbers(self.rank, host) if self.stream else host

    def write(self, x, host):
        """By work of the stream."""
        if not self.stream:
            x[...] = host
        elif host.size:
            self.sent.append(host)
            target = x.__cuda_array_interface__["data"][0]
            numbers = (ctypes.c_uint64(each) for each in (target, host.ctypes.data, host.nbytes))
            call("cuMemcpyAsync", *numbers, self.stream.handle)

    def read(self, x):
        if not self.stream:
            return np.array(x)
        self.stream.wait()
        self.sent.clear()
        return get(x)


SHAPES = {"weight": (6, 10), "empty": (0,), "half": (7,), "bias": (3,)}
TYPES = {"weight": np.float32, "empty": np.float32, "half": np.float16, "bias": np.float64}
NAMES = tuple(reversed(SHAPES))


def values_of(rank, iteration, name):
    random = np.random.default_rng([rank, iteration, len(name)])
    return random.integers(-8, 8, SHAPES[name]).astype(TYPES[name]) + TYPES[name](rank / 4)


def average_of(ranks, iteration, name):
    return sum(values_of(rank, iteration, name).astype(np.float64) for rank in ranks) / len(ranks)


def model_of(memory):
    return {name: memory.array(np.full(SHAPES[name], memory.rank + 1, TYPES[name])) for name in SHAPES}


def iterate(ddp, memory, iteration, names=NAMES, **options):
    """One iteration; the gradients after it."""
    with ddp.iteration(stream=memory.stream, **options):
        for name in names:
            memory.write(ddp.gradient(name), values_of(memory.rank, iteration, name))
            ddp.ready(name, stream=memory.stream)
    return {name: memory.read(ddp.gradient(name)) for name in SHAPES}


def in_both_memories(test, ranks, body):
    """body(comm, memory) gives arrays: those of a device are those of host memory, to the bit."""
    host = on_ranks(ranks, lambda comm: body(comm, Memory(comm.rank, False)))
    device = on_devices(ranks, lambda comm: body(comm, Memory(comm.rank, True)))
    for one, other in zip(host, device):
        test.assertEqual(len(one), len(other))
        for left, right in zip(one, other):
            np.testing.assert_array_equal(left, right)
    return device


class Averages(unittest.TestCase):
    def test_gradients_in_buckets_are_arrays_on_the_device(self):
        def body(comm):
            memory = Memory(comm.rank, True)
            model = model_of(memory)
            buffers = {"steps": memory.array(np.full(2, comm.rank, np.int64))}
            with weft.train.Ddp(comm, model, buffers=buffers, bucket_cap_bytes=16) as ddp:
                np.testing.assert_array_equal(get(model["weight"]), 1)
                for iteration in range(3):
                    memory.write(buffers["steps"], np.full(2, 10 * comm.rank + iteration))
                    for name, gradient in iterate(ddp, memory, iteration).items():
                        np.testing.assert_allclose(gradient, average_of(range(comm.size), iteration, name), 1e-3)
                    np.testing.assert_array_equal(get(buffers["steps"]), iteration)
                x = ddp.gradient("weight")
                self.assertEqual((x.shape, x.dtype, x.device.id), (SHAPES["weight"], "float32", comm.rank))
                self.assertEqual(ddp.gradient("empty").shape, (0,))
                # Calls of weft take it.
                comm.all_reduce(x, stream=memory.stream)
                memory.stream.wait()
                del x
                ddp.zero_gradients(stream=memory.stream)
                self.assertFalse(memory.read(ddp.gradient("bias")).any())

        on_devices(1, body)
        on_devices(2, body)

    def test_all_settings_have_the_numbers_of_host_memory(self):
        def body(comm, memory):
            seen = []
            own = {"bias": memory.array(np.zeros(3)), "weight": memory.array(np.zeros((6, 10), np.float32))}
            with weft.train.Ddp(comm, model_of(memory), gradients=own, find_unused=True) as ddp:
                self.assertIs(ddp.gradient("bias"), own["bias"])
                iterate(ddp, memory, 0)
                seen += iterate(ddp, memory, 1, NAMES if comm.rank else ("bias",)).values()
                self.assertTrue(ddp.used("weight"))
            with weft.train.Ddp(comm, model_of(memory)) as ddp:
                iterate(ddp, memory, 0, accumulate=True)
                with ddp.iteration(stream=memory.stream):
                    ddp.ready_all(stream=memory.stream)
                seen += [memory.read(ddp.gradient(name)) for name in SHAPES]
            with weft.train.Ddp(comm, model_of(memory), static_graph=True) as ddp:
                for iteration in range(3):
                    seen += iterate(ddp, memory, iteration, ("weight", "bias", "weight")).values()
            model = model_of(memory)
            with weft.train.Ddp(comm, model, join=True, divide_by_active=True) as ddp:
                for iteration in range(1 + comm.rank):
                    iterate(ddp, memory, iteration)
                memory.write(model["bias"], np.full(3, 5.0 + comm.rank))
                ddp.join(stream=memory.stream)
                seen.append(memory.read(model["bias"]))
            return seen

        for seen in in_both_memories(self, 2, body):
            self.assertEqual(seen[-1][0], 6.0)  # of the rank that was active last

    def test_optimizers_and_norms_of_a_thread_without_a_context_find_the_device(self):
        def body(comm, memory):
            def without_context(function, *arguments, **named):
                if not memory.stream:
                    return function(*arguments, **named)
                call("cuCtxSetCurrent", None)
                try:
                    return function(*arguments, stream=memory.stream, **named)
                finally:
                    use(comm.rank)

            model = {"weight": memory.array(np.ones((6, 10), np.float32))}
            with weft.train.Ddp(comm, model) as ddp:
                make = lambda stream=None: weft.train.Optimizer("adamw", model, ddp=ddp)  # noqa: E731
                optimizer, scaler, norms = without_context(make), weft.train.Scaler(scale=2.0), []
                for iteration in range(3):
                    with ddp.iteration(stream=memory.stream):
                        memory.write(ddp.gradient("weight"), values_of(comm.rank, iteration, "weight"))
                        ddp.ready("weight", stream=memory.stream)
                    gradients = {"weight": ddp.gradient("weight")}
                    norms.append(without_context(weft.train.gradient_norm, gradients))
                    without_context(weft.train.clip_gradients, gradients, norms[-1], norms[-1] / 2)
                    without_context(scaler.unscale, gradients)
                    without_context(optimizer.step, 0.125)
                    seen = memory.read(model["weight"])
                    del gradients
                optimizer.close()
            self.assertFalse((seen == 1).any())
            return seen, np.array(norms)

        in_both_memories(self, 2, body)


class Hooks(unittest.TestCase):
    def test_hooks_by_name_and_compressors_have_the_numbers_of_host_memory(self):
        hooks = {
            "float16": lambda: "float16",
            "bfloat16": lambda: "bfloat16",
            "powersgd": lambda: weft.train.Compressor("powersgd", rank=2, least_rate=0.5, start_iteration=1),
            "topk": lambda: weft.train.Compressor("topk", density=0.4),
            "onebit": lambda: weft.train.Compressor("onebit", momentum=0, start_iteration=1),
            "int8": lambda: weft.train.Compressor("int8", block_count=8),
            "float8": lambda: weft.train.Compressor("float8"),
        }

        def body(comm, memory):
            seen = []
            for make in hooks.values():
                hook = make()
                with weft.train.Ddp(comm, model_of(memory), hook=hook, bucket_cap_bytes=16) as ddp:
                    for iteration in range(3):
                        seen += iterate(ddp, memory, iteration).values()
                    if not isinstance(hook, str):
                        state = hook.save()
                        hook.load(state)
                        seen.append(np.frombuffer(state, np.uint8))
            return seen

        in_both_memories(self, 2, body)

    def test_a_function_enqueues_its_work_on_the_buckets_stream(self):
        def body(comm, memory):
            compressor = weft.train.Compressor("int8", error_feedback=False)
            seen = []

            def hook(bucket):
                seen.append(len(bucket.data))
                self.assertEqual(bucket.stream is None, memory.stream is None)
                if "weight" in bucket.names:
                    bucket.compress(compressor)
                elif "half" in bucket.names:
                    bucket.average("bfloat16")
                else:
                    bucket.comm.all_reduce(bucket.data, stream=bucket.stream)

            with weft.train.Ddp(comm, model_of(memory), hook=hook, bucket_cap_bytes=1) as ddp:
                results = [*iterate(ddp, memory, 0).values(), *iterate(ddp, memory, 1).values()]
                np.testing.assert_array_equal(results[-1], 2 * average_of(range(2), 1, "bias"))
            return [*results, np.array(seen)]

        in_both_memories(self, 2, body)

    def test_scratch_memory_lies_on_the_device(self):
        def body(comm):
            memory, found = Memory(comm.rank, True), []

            def hook(bucket):
                scratch = bucket.scratch(24)
                target, source = (each.__cuda_array_interface__["data"][0] for each in (scratch, bucket.data))
                numbers = (ctypes.c_uint64(each) for each in (target, source, len(scratch)))
                call("cuMemcpyAsync", *numbers, ctypes.c_void_p(bucket.stream))
                bucket.comm.all_reduce(scratch, "max", stream=bucket.stream)
                found.append(target)
                bucket.average()

            with weft.train.Ddp(comm, {"bias": memory.array(np.zeros(3))}, hook=hook) as ddp:
                with ddp.iteration(stream=memory.stream):
                    memory.write(ddp.gradient("bias"), np.full(3, comm.rank + 2.0))
                    ddp.ready("bias", stream=memory.stream)
                memory.stream.wait()
                copied = np.zeros(3)
                copy(copied.ctypes.data, found[0], copied.nbytes)
                bytes_of_ranks = [np.full(3, rank + 2.0).view(np.uint8) for rank in range(comm.size)]
                np.testing.assert_array_equal(copied.view(np.uint8), np.max(bytes_of_ranks, axis=0))

        on_devices(2, body)

    def test_an_array_over_scratch_memory_keeps_it(self):
        kept = []

        def body(comm):
            memory = Memory(comm.rank, True)
            with self.assertRaises(weft.InvalidUsageError) as caught:
                with weft.train.Ddp(comm, model_of(memory), hook=lambda each: kept.append(each.scratch(64))) as ddp:
                    iterate(ddp, memory, 0)
            self.assertIn("keeps an array", str(caught.exception.__cause__))
            del ddp
            gc.collect()
            copy(kept[0].__cuda_array_interface__["data"][0], np.zeros(8).ctypes.data, 64)
            kept.clear()

        on_devices(1, body)

    def test_an_exception_of_a_hook_is_the_cause_of_the_error_and_ends_all_ranks(self):
        def body(comm):
            memory = Memory(comm.rank, True)

            def hook(bucket):
                if comm.rank == 1:
                    raise ZeroDivisionError("no such number")
                bucket.average()

            ddp = weft.train.Ddp(comm, model_of(memory), hook=hook)
            comm.barrier()
            with self.assertRaises(weft.Error) as caught:
                for iteration in range(1000):
                    iterate(ddp, memory, iteration)
            memory.stream.wait()  # it may still write gradients
            ddp.close()
            return caught.exception

        errors = on_devices(2, body)
        self.assertEqual([error.id for error in errors], ["abort.remote", "train.hook"])
        self.assertIsInstance(errors[1].__cause__, ZeroDivisionError)


class Errors(unittest.TestCase):
    def test_arrays_in_two_places_are_refused_on_all_ranks(self):
        def body(comm):
            memory = Memory(comm.rank, True)
            for wrong in (np.zeros(3), Numbers(1 - comm.rank, np.zeros(3))):
                model = model_of(memory)  # its device is current again
                if comm.rank == 1:
                    model["bias"] = wrong
                with self.assertRaises(weft.Error) as caught:
                    weft.train.Ddp(comm, model)
                self.assertEqual(caught.exception.id, "argument.device" if comm.rank == 1 else "train.model")
            if comm.rank == 0:
                x = memory.array(np.zeros(3))
                for own in ({"bias": np.zeros(3)}, {"bias": x}):
                    with self.assertRaises(weft.InvalidArgumentError) as caught, weft.init() as alone:
                        weft.train.Ddp(alone, {"bias": memory.array(np.zeros(3, np.float32))}, gradients=own)
                    self.assertIn(caught.exception.id, ("python.device", "python.dtype"))

        on_devices(2, body)

    def test_a_model_on_another_device_than_that_of_comm_is_refused(self):
        with weft.init(device=0) as comm, weft.init(device=False) as without:
            for each, identifier in ((comm, "argument.device"), (without, "gpu.unavailable")):
                with self.assertRaises(weft.Error) as caught:
                    weft.train.Ddp(each, {"x": Numbers(1, np.zeros(3))})
                self.assertEqual(caught.exception.id, identifier)

    def test_streams_of_the_other_kind_of_memory_are_refused(self):
        use(0)
        with weft.init(device=0) as comm, weft.Stream() as stream:
            pairs = ((Numbers(0, np.zeros(3)), stream), (np.zeros(3), CudaStream()))
            for x, wrong in pairs:
                with weft.train.Ddp(comm, {"x": x}) as ddp:
                    calls = (ddp.begin, ddp.finish, ddp.join, ddp.zero_gradients)
                    for call_of_ddp in (*calls, lambda stream: ddp.ready("x", stream=stream)):
                        with self.assertRaises(weft.InvalidArgumentError) as caught:
                            call_of_ddp(stream=wrong)
                        self.assertEqual(caught.exception.id, "argument.stream")

    def test_gradients_keep_their_memory(self):
        def body(comm):
            memory = Memory(comm.rank, True)
            ddp = weft.train.Ddp(comm, model_of(memory))
            gradient = ddp.gradient("weight")
            with self.assertRaisesRegex(weft.InvalidUsageError, "Delete them first"):
                ddp.close()
            del ddp
            gc.collect()
            memory.write(gradient, np.full((6, 10), 1, np.float32))
            self.assertEqual(memory.read(gradient).sum(), 60)

        on_devices(1, body)


if __name__ == "__main__":
    unittest.main()
