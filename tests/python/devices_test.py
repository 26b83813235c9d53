"""Arrays and streams on CUDA devices, on the fake driver."""
import ctypes
import os
import shutil
import tempfile
import unittest

import weft
from device_arrays import CudaStream, Floats, copy, on_devices, read, use, write


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


class Shards(unittest.TestCase):
    """Sharded models on devices."""

    def train(self, comm, **settings):
        """Two steps of value -= gradient / 2; the gradient of an element is its value, plus the rank. The values."""
        on_host = settings.get("shards_on_host", False)
        stream = CudaStream()
        model = {"layer": {"weight": Floats(comm.rank, [1.0, 2, 3, 4, 5]), "bias": Floats(comm.rank, [6.0])}}
        shard = weft.train.Shard(comm, model, **settings)
        optimizer = None
        for _ in range(2):
            with shard.iteration(stream=stream):
                with shard.gather("layer", backward=True, stream=stream) as whole:
                    for name, x in whole.items():
                        gradient = shard.gradient(name)
                        self.assertEqual((x.device.id, x.dtype, len(gradient)), (comm.rank, "float32", len(x)))
                        stream.wait()
                        write(gradient, [each + comm.rank for each in read(x)])
                shard.reduce_scatter("layer", stream=stream)
            pieces = {name: shard.piece(name) for name in shard.parameters}
            if on_host:
                pieces = {name: each for name, each in pieces.items() if len(each.values)}
                gradients = {name: each.gradient for name, each in pieces.items()}
                values = {name: each.values for name, each in pieces.items()}
                optimizer = optimizer or weft.train.Optimizer("sgd", values, gradients=gradients, shard=shard)
                optimizer.step(0.5)
            else:
                stream.wait()
                for piece in pieces.values():
                    if len(piece.values):
                        new = [v - g / 2 for v, g in zip(read(piece.values), read(piece.gradient))]
                        write(piece.values, new)
            shard.zero_gradients()
        stats = shard.stats()
        self.assertEqual(stats.host_bytes, stats.shard_bytes if on_host else 0)
        whole = shard.gather("layer", stream=stream)
        # Calls of weft take its arrays.
        doubled = comm.all_reduce(whole["weight"], stream=stream)
        stream.wait()
        seen = [each / comm.size for each in read(doubled)] + read(whole["bias"])
        del whole, doubled
        shard.close()
        return seen

    def test_units_and_pieces_are_arrays_on_the_device(self):
        def expected(value, ranks):
            for _ in range(2):
                value -= (value + (ranks - 1) / 2) / 2
            return value

        for ranks, settings in ((1, {}), (2, {}), (2, {"sharding": "rows"}), (2, {"shards_on_host": True})):
            seen = on_devices(ranks, lambda comm: self.train(comm, **settings))
            self.assertEqual(seen, [[expected(each, ranks) for each in (1.0, 2, 3, 4, 5, 6)]] * ranks)

    def test_mixed_precision_has_arrays_of_the_wholes_dtype(self):
        def body(comm):
            model = {"layer": {"weight": Floats(comm.rank, [1.0, 2.0])}}
            with weft.train.Shard(comm, model, parameter_type="bfloat16", reduce_type="float32") as shard:
                with shard.iteration():
                    with shard.gather("layer") as whole:
                        x = whole["weight"]
                        self.assertEqual((x.dtype, x.__cuda_array_interface__["typestr"]), ("bfloat16", "<V2"))
                self.assertEqual(shard.piece("weight").values.dtype, "float32")

        on_devices(2, body)

    def test_arrays_of_other_places_and_other_streams_are_refused(self):
        use(0)
        host = memoryview(bytearray(4)).cast("f")
        models = [({"a": Floats(0, [1.0]), "b": host}, "in host memory"), ({"a": Floats(1, [1.0])}, "cuda:1")]
        with weft.init(device=0) as comm, weft.Stream() as stream:
            for model, text in models:
                with self.assertRaisesRegex(weft.InvalidArgumentError, text) as caught:
                    weft.train.Shard(comm, {"layer": model})
                self.assertEqual(caught.exception.id, "python.device")
            with weft.train.Shard(comm, {"layer": {"a": Floats(0, [1.0])}}) as shard:
                with self.assertRaises(weft.InvalidArgumentError) as caught:
                    shard.gather("layer", stream=stream)
                self.assertEqual(caught.exception.id, "argument.stream")
            with weft.train.Shard(comm, {"layer": {"b": host}}) as shard:
                with self.assertRaises(weft.InvalidArgumentError) as caught:
                    shard.gather("layer", stream=CudaStream())
                self.assertEqual(caught.exception.id, "argument.stream")


class Optimizers(unittest.TestCase):
    """Optimizers and checkpoints of arrays on devices."""

    values = [1.0, -2.0, 3.0, 0.5]
    gradients = [0.5, 0.25, -1.0, 2.0]

    def host_steps(self, algorithm):
        x = memoryview(bytearray(16)).cast("f")
        g = memoryview(bytearray(16)).cast("f")
        for i in range(4):
            x[i], g[i] = self.values[i], self.gradients[i]
        optimizer = weft.train.Optimizer(algorithm, {"x": x}, gradients={"x": g}, weight_decay=0.1)
        for _ in range(3):
            optimizer.step(0.1)
        # A memoryview has no library that makes the copies of read_state.
        state = {key: list(each) for key, each in optimizer.state("x").items()}
        optimizer.close()
        return list(x), state

    def test_steps_and_states_are_those_of_host_memory(self):
        use(0)
        for algorithm in ("sgd", "adam", "adamw", "lamb"):
            with self.subTest(algorithm):
                stream = CudaStream()
                x, g = Floats(0, self.values), Floats(0, self.gradients)
                optimizer = weft.train.Optimizer(algorithm, {"x": x}, gradients={"x": g}, weight_decay=0.1)
                for _ in range(3):
                    optimizer.step(0.1, stream=stream)
                stream.wait()
                values, state = self.host_steps(algorithm)
                self.assertEqual(x.values(), values)
                self.assertEqual({key: list(each) for key, each in optimizer.read_state("x").items()}, state)
                seen = {key: (each.device.id, read(each)) for key, each in optimizer.state("x").items()}
                self.assertEqual(seen, {key: (0, each) for key, each in state.items()})
                if state:
                    optimizer.write_state("x", {"exp_avg": memoryview(bytearray(16)).cast("f")})
                    self.assertEqual(list(optimizer.read_state("x")["exp_avg"]), [0.0] * 4)
                optimizer.close()

    def test_norms_clipping_and_loss_scaling(self):
        use(0)
        stream, g = CudaStream(), Floats(0, [3.0, 4.0])
        self.assertEqual(weft.train.gradient_norm({"g": g}, stream=stream), 5.0)
        weft.train.clip_gradients({"g": g}, 5.0, 2.5, stream=stream)
        stream.wait()
        self.assertAlmostEqual(g.values()[1], 2.0, 5)
        with weft.train.Scaler(scale=2.0) as scaler:
            self.assertFalse(scaler.unscale({"g": g}, stream=stream))
            stream.wait()
            self.assertAlmostEqual(g.values()[0], 0.75, 5)

    def test_parts_in_two_places_are_refused(self):
        use(0)
        host = memoryview(bytearray(16)).cast("f")
        with self.assertRaises(weft.InvalidArgumentError) as caught:
            weft.train.Optimizer("sgd", {"x": Floats(0, self.values)}, gradients={"x": host})
        self.assertEqual(caught.exception.id, "argument.device")

    def test_checkpoints_and_replicas_take_arrays_on_devices(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)

        def body(comm):
            stream = CudaStream()
            x = Floats(comm.rank, [10.0 * comm.rank + i for i in range(4)])
            box = weft.train.Box(x, shape=(4 * comm.size,), offsets=(4 * comm.rank,))
            with weft.train.Checkpoint(comm) as checkpoint:
                checkpoint.save(os.path.join(folder, "one"), {"x": box}, stream=stream)
                whole = Floats(comm.rank, [0.0] * 4 * comm.size)
                checkpoint.load(os.path.join(folder, "one"), {"x": whole}, stream=stream)
            stream.wait()
            with weft.train.Replica(1, comm.size) as replica:
                replica.save(comm, 1, {"x": box}, stream=stream)
                copy_of_x = Floats(comm.rank, [0.0] * 4)
                own = weft.train.Box(copy_of_x, shape=(4 * comm.size,), offsets=(4 * comm.rank,))
                replica.load(comm, {"x": own}, stream=stream)
            stream.wait()
            return whole.values(), copy_of_x.values() == x.values()

        expected = [0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 13.0]
        self.assertEqual(on_devices(2, body), [(expected, True)] * 2)


if __name__ == "__main__":
    unittest.main()
