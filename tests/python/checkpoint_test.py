"""weft.train.Checkpoint: arrays of numpy and torch, other numbers of ranks, items, errors, the files' format."""
import json
import os
import tempfile
import unittest
from pathlib import Path

import numpy as np
import weft
from ranks import errors_of_ranks, on_ranks
from weft.train import Box, Checkpoint, Replica

try:
    import torch
except ImportError:
    torch = None

try:
    import safetensors.numpy
except ImportError:
    safetensors = None


def safetensors_of(path):
    """The header and the arrays of a file, by the rules of the format."""
    data = Path(path).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    types = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "U8": np.uint8}
    arrays = {}
    header.pop("__metadata__", None)
    for name, facts in header.items():
        begin, end = facts["data_offsets"]
        flat = np.frombuffer(data[8 + length + begin : 8 + length + end], types[facts["dtype"]])
        arrays[name] = flat.reshape(facts["shape"])
    return arrays


class Checkpoints(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = Path(self.folder.name)
        self.weight = np.arange(70, dtype=np.float32).reshape(10, 7)
        self.bias = np.arange(5, dtype=np.float64)

    def save(self, name, ranks=3, **options):
        def body(comm):
            rows = -(-10 // comm.size)
            begin = min(10, rows * comm.rank)
            part = self.weight[begin : begin + rows].copy()
            with Checkpoint(comm) as checkpoint:
                checkpoint.save(
                    self.path / name,
                    {"weight": Box(part, (10, 7), (begin, 0)), "bias": self.bias, "flag": np.array([True, False])},
                    items={"step": b"7"},
                    own_items={"random": bytes([comm.rank]) * comm.rank},
                    **options,
                )
                part[:] = -1
                checkpoint.wait()
                self.assertTrue(checkpoint.test())
                comm.barrier()

        on_ranks(ranks, body)

    def test_another_number_of_ranks_loads(self):
        for background in (False, True):
            name = f"c{background}"
            self.save(name, background=background)

            def body(comm):
                half = 5 * comm.rank
                weight, bias = np.zeros((5, 7), np.float32), np.zeros(5)
                checkpoint = Checkpoint(comm)
                checkpoint.load(str(self.path / name), [("weight", Box(weight, (10, 7), (half, 0))), ("bias", bias)])
                np.testing.assert_array_equal(weight, self.weight[half : half + 5])
                np.testing.assert_array_equal(bias, self.bias)
                self.assertEqual((checkpoint.ranks, checkpoint.item("step")), (3, b"7"))
                self.assertEqual([checkpoint.item("random", rank) for rank in range(3)], [b"", b"\1", b"\2\2"])
                comm.barrier()
                checkpoint.close()
                with self.assertRaises(weft.InvalidUsageError):
                    checkpoint.wait()

            on_ranks(2, body)

    def test_places_may_be_numbers_of_numpy(self):
        def body(comm):
            rows = np.full((2, 3), comm.rank, np.float32)
            shape, offsets = (np.int64(4), np.int32(3)), (np.int64(2) * comm.rank, 0)
            with Checkpoint(comm) as checkpoint:
                checkpoint.save(self.path / "numpy", {"x": Box(rows, shape, offsets)})
            with self.assertRaises(TypeError):
                Box(rows, (4.0, 3))

        on_ranks(2, body)

    def test_the_folder_of_the_process_may_change(self):
        def body(comm):
            with Checkpoint(comm) as checkpoint:
                checkpoint.save("relative", {"bias": self.bias}, items={"step": b"7"}, background=True)
                os.chdir("/")
                checkpoint.wait()
                os.chdir(self.path)
                checkpoint.load("relative", {"bias": np.zeros(5)})
                os.chdir("/")
                self.assertEqual(checkpoint.item("step"), b"7")

        before = os.getcwd()
        os.chdir(self.path)
        try:
            on_ranks(1, body)
        finally:
            os.chdir(before)

    @unittest.skipUnless(torch, "torch is missing")
    def test_tensors_of_torch(self):
        def body(comm):
            with Checkpoint(comm) as checkpoint:
                own = torch.arange(6).reshape(2, 3).bfloat16()
                checkpoint.save(self.path / "torch", {"x": own})
                loaded = torch.zeros(2, 3, dtype=torch.bfloat16)
                checkpoint.load(self.path / "torch", {"x": loaded})
                self.assertTrue(torch.equal(loaded, own))

        on_ranks(1, body)

    def test_files_are_safetensors(self):
        self.save("c", 2)

        def body(comm):
            with Checkpoint(comm) as checkpoint:
                checkpoint.export(self.path / "c", self.path / "all.safetensors")
                checkpoint.export(self.path / "c", self.path / "b.safetensors", prefix="bi")
                comm.barrier()

        on_ranks(2, body)
        arrays = safetensors_of(self.path / "all.safetensors")
        self.assertEqual(sorted(arrays), ["bias", "flag", "weight"])
        np.testing.assert_array_equal(arrays["weight"], self.weight)
        np.testing.assert_array_equal(arrays["bias"], self.bias)
        self.assertEqual(list(safetensors_of(self.path / "b.safetensors")), ["as"])
        parts = safetensors_of(self.path / "c" / "rank-00001.safetensors")
        np.testing.assert_array_equal(parts["weight[5:10, 0:7]"], self.weight[5:])
        self.assertEqual(parts["item:1:random"].tobytes(), b"\1")
        if safetensors:
            loaded = safetensors.numpy.load_file(self.path / "all.safetensors")
            np.testing.assert_array_equal(loaded["weight"], self.weight)
            safetensors.numpy.load_file(self.path / "c" / "rank-00001.safetensors")

    def test_a_sharded_model_is_saved_and_loaded(self):
        def body(comm):
            units = {"layer": {"weight": self.weight, "bias": self.bias}}
            with weft.train.Shard(comm, units, sharding=sharding) as shard, Checkpoint(comm) as checkpoint:
                states = {name: shard.piece(name).values + 1 for name in shard.parameters}
                boxes = {**shard.boxes(), **shard.boxes(states, prefix="adam/")}
                checkpoint.save(self.path / sharding, boxes)
                del boxes
                weight, bias = np.zeros((10, 7), np.float32), np.zeros(5)
                checkpoint.load(self.path / sharding, {"weight": weight, "adam/bias": bias})
                np.testing.assert_array_equal(weight, self.weight)
                np.testing.assert_array_equal(bias, self.bias + 1)
                checkpoint.export(self.path / sharding, self.path / f"{sharding}.safetensors", prefix="adam/")
                # A checkpoint of arrays goes into the sharded model.
                checkpoint.save(self.path / f"{sharding}-whole", {"weight": self.weight + 5, "bias": self.bias})
                checkpoint.load(self.path / f"{sharding}-whole", shard.boxes())
                with shard.gather("layer", backward=True) as whole:
                    np.testing.assert_array_equal(whole["weight"], self.weight + 5)
                    del whole
                shard.finish()
                comm.barrier()

        for sharding in ("rows", "flat"):
            on_ranks(3, body)
            exported = safetensors_of(self.path / f"{sharding}.safetensors")
            np.testing.assert_array_equal(exported["weight"], self.weight + 1)

    def test_training_goes_on_with_another_number_of_ranks_as_if_it_had_not_stopped(self):
        results = {}

        def body(comm, first, last, loads, saves):
            units = {"layer": {"weight": self.weight / 70, "bias": self.bias.astype(np.float32)}}
            with weft.train.Shard(comm, units) as shard:
                pieces = {name: shard.piece(name).values for name in shard.parameters}
                optimizer = weft.train.Optimizer("adamw", pieces)
                moments = {name: optimizer.state(name) for name in pieces}
                boxes = shard.boxes()
                for key in ("exp_avg", "exp_avg_sq"):
                    boxes.update(shard.boxes({name: moments[name][key] for name in pieces}, prefix=key + "/"))
                with Checkpoint(comm) as checkpoint:
                    if loads:
                        checkpoint.load(self.path / loads, boxes)
                        for name in pieces:
                            optimizer.set_steps(name, int(checkpoint.item("steps")))
                    for step in range(first, last):
                        with shard.iteration():
                            with shard.gather("layer", backward=True) as whole:
                                for name in whole:
                                    shard.gradient(name)[...] = np.sin(whole[name] + step)
                            shard.reduce_scatter("layer")
                        for name in pieces:
                            optimizer.set_gradient(name, shard.piece(name).gradient)
                        optimizer.step(0.1)
                        for name in pieces:
                            optimizer.set_gradient(name, None)
                        shard.zero_gradients()
                    checkpoint.save(self.path / saves, boxes, items={"steps": str(last).encode()})
                    whole = {"weight": np.zeros((10, 7), np.float32), "exp_avg_sq/bias": np.zeros(5, np.float32)}
                    checkpoint.load(self.path / saves, whole)
                results[saves] = whole
                del moments, boxes
                optimizer.close()
                del optimizer, pieces
                comm.barrier()

        on_ranks(2, lambda comm: body(comm, 0, 8, None, "whole"))
        on_ranks(2, lambda comm: body(comm, 0, 4, None, "half"))
        on_ranks(3, lambda comm: body(comm, 4, 8, "half", "resumed"))
        for name, x in results["whole"].items():
            np.testing.assert_allclose(results["resumed"][name], x, rtol=1e-5)
            self.assertGreater(np.abs(results["half"][name] - x).max(), 1e-3)

    def test_an_error_of_one_rank_is_one_of_all(self):
        def wrong_array(comm):
            with Checkpoint(comm) as checkpoint:
                checkpoint.save(self.path / "x", {"weight": self.weight[:, ::2] if comm.rank == 1 else self.weight})

        def wrong_shape(comm):
            with Checkpoint(comm) as checkpoint:
                checkpoint.save(self.path / "x", {"weight": Box(self.weight, (-1, 7)) if comm.rank == 1 else self.weight})

        def not_there(comm):
            with Checkpoint(comm) as checkpoint:
                checkpoint.load(self.path, {"weight": self.weight})

        for body, kind in ((wrong_array, weft.InvalidArgumentError), (wrong_shape, weft.InvalidArgumentError)):
            errors = errors_of_ranks(2, body)
            self.assertEqual([type(error) for error in errors], [kind, kind], errors)
        self.assertEqual([error.id for error in errors_of_ranks(2, not_there)], ["train.checkpoint-incomplete"] * 2)
        self.assertFalse((self.path / "x" / "checkpoint.json").exists())

    def test_an_argument_of_a_wrong_kind_on_one_rank_is_an_error_of_all(self):
        self.save("kinds", 2)
        path = self.path / "new"

        class Wrong:
            def __bool__(self):
                raise ZeroDivisionError

        replicas = [Replica(1) for _ in range(2)]
        good = {"bias": self.bias}
        calls = {
            "folder": lambda own, comm, bad: own.save(7 if bad else path, good),
            "tensors": lambda own, comm, bad: own.save(path, 7 if bad else good),
            "name": lambda own, comm, bad: own.save(path, {7 if bad else "bias": self.bias}),
            "items": lambda own, comm, bad: own.save(path, good, items=7 if bad else {}),
            "item": lambda own, comm, bad: own.save(path, good, items={"step": 7 if bad else b"7"}),
            "mode": lambda own, comm, bad: own.save(path, good, background=Wrong() if bad else False),
            "load": lambda own, comm, bad: own.load(None if bad else self.path / "kinds", good),
            "loaded": lambda own, comm, bad: own.load(self.path / "kinds", [7] if bad else good),
            "export": lambda own, comm, bad: own.export(self.path / "kinds", 7 if bad else path),
            "prefix": lambda own, comm, bad: own.export(self.path / "kinds", path, prefix=7 if bad else ""),
            "version": lambda own, comm, bad: replicas[comm.rank].save(comm, "7" if bad else 7, good),
            "negative": lambda own, comm, bad: replicas[comm.rank].save(comm, -1 if bad else 7, good),
            "copies": lambda own, comm, bad: replicas[comm.rank].load(comm, 7 if bad else good),
            "local": lambda own, comm, bad: weft.train.Local(comm, 7 if bad else {"x": np.zeros(3)}, period=2),
            "ddp": lambda own, comm, bad: weft.train.Ddp(comm, 7 if bad else {"x": np.zeros(3)}),
            "buffers": lambda own, comm, bad: weft.train.Ddp(comm, {"x": np.zeros(3)}, buffers=7 if bad else None),
        }

        def body(comm):
            errors = []
            with Checkpoint(comm) as checkpoint:
                for call in calls.values():
                    try:
                        call(checkpoint, comm, comm.rank == 1)
                        errors.append(None)
                    except Exception as error:
                        errors.append(error)
                checkpoint.load(self.path / "kinds", {"bias": np.zeros(5)})  # it lives on
                comm.barrier()
            return errors

        for name, other, own in zip(calls, *on_ranks(2, body)):
            with self.subTest(name):
                self.assertIsInstance(other, weft.Error)
                self.assertIn("rank 1", str(other))
                self.assertIsInstance(own, (TypeError, AttributeError, ZeroDivisionError, weft.Error))
        self.assertFalse((path / "checkpoint.json").exists())

    def test_the_contents_are_listed_without_a_communicator(self):
        self.save("listed")
        contents = weft.train.checkpoint_contents(self.path / "listed")
        self.assertEqual(contents.ranks, 3)
        tensors = {"bias": ((5,), "float64", 40), "flag": ((2,), "uint8", 2), "weight": ((10, 7), "float32", 280)}
        self.assertEqual(contents.tensors, tensors)
        self.assertEqual(contents.items, {"step": b"7"})
        self.assertEqual(contents.own_items, {"random": {0: b"", 1: b"\1", 2: b"\2\2"}})
        with self.assertRaises(weft.Error) as caught:
            weft.train.checkpoint_contents(self.path)
        self.assertEqual(caught.exception.id, "train.checkpoint-incomplete")

    def test_an_aborted_save_ends(self):
        def body(comm):
            checkpoint = Checkpoint(comm)
            comm.barrier()
            if comm.rank == 1:
                checkpoint.abort()
            with self.assertRaises(weft.Error) as caught:
                checkpoint.save(self.path / "x", {"bias": self.bias})
            comm.barrier()
            return caught.exception.id

        self.assertEqual(on_ranks(2, body), ["abort.remote", "train.aborted"])

class Replicas(unittest.TestCase):
    def test_a_lost_rank_gets_its_state_from_the_copy(self):
        replicas = [Replica(1) for _ in range(2)]

        def save(comm):
            row = np.full((1, 3), comm.rank, np.float32)
            tensors = {"rows": Box(row, (2, 3), (comm.rank, 0))}
            replicas[comm.rank].save(comm, 5, tensors, items={"step": b"5"}, own_items={"rank": bytes([comm.rank])})

        def load(comm):
            rows = np.zeros((2, 3), np.float32)
            replica = replicas[comm.rank]
            self.assertEqual(replica.load(comm, {"rows": rows}), 5)
            np.testing.assert_array_equal(rows[:, 2], [0, 1])
            self.assertEqual((replica.item("step"), replica.item("rank", per_rank=True)), (b"5", bytes([comm.rank])))

        on_ranks(2, save)
        replicas[0].close()
        replicas[0] = Replica(jump=1, copies=2)
        on_ranks(2, load)
        with replicas[0] as replica:
            self.assertEqual(replica.item("step"), b"5")
        with self.assertRaises(weft.InvalidUsageError):
            replicas[0].item("step")

    def test_an_error_of_one_rank_is_one_of_all(self):
        def body(comm):
            wrong = np.zeros((4, 4))[:, ::2]
            Replica(1).save(comm, 1, {"x": wrong if comm.rank == 1 else np.zeros(2)})

        self.assertEqual([type(error) for error in errors_of_ranks(2, body)], [weft.InvalidArgumentError] * 2)


if __name__ == "__main__":
    unittest.main()
