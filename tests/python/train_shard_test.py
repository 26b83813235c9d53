"""weft.train.Shard: units of numpy, torch and other arrays, their gathers and reductions, and errors."""
import gc
import unittest
import weakref

import numpy as np
import weft
from ranks import end_job, errors_of_ranks, on_ranks, run_job, start_job

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

try:
    import torch
except ImportError:
    torch = None


def model(rank):
    """Odd shapes; only rank 0's values count."""
    own = 1 if rank == 0 else np.nan
    return {
        "first": {
            "weight": np.arange(21, dtype=np.float32).reshape(7, 3) * own,
            "empty": np.zeros((0, 2), np.float32),
            "half": np.full(5, 2, np.float16) * np.float16(own),
        },
        "second": {"bias": np.full(3, 3.0) * own},
    }


def step(shard, rank, iteration):
    with shard.iteration():
        for unit in shard.units:
            with shard.gather(unit) as values:
                for name in values:
                    assert not np.isnan(values[name]).any(), name
        for unit in reversed(shard.units):
            with shard.gather(unit, backward=True) as values:
                for name in values:
                    shard.gradient(name)[...] += 10 * rank + iteration
            shard.reduce_scatter(unit)


class Values(unittest.TestCase):
    def test_each_rank_has_a_piece_of_rank_0s_values_and_gathers_whole_units(self):
        def body(comm, **settings):
            shard = weft.train.Shard(comm, model(comm.rank), **settings)
            expected = {name: x for unit in model(0).values() for name, x in unit.items()}
            for iteration in range(2):
                step(shard, comm.rank, iteration)
                for name, x in expected.items():
                    piece = shard.piece(name)
                    own = slice(piece.begin, piece.begin + len(piece.values))
                    np.testing.assert_array_equal(piece.values, x.reshape(-1)[own])
                    np.testing.assert_array_equal(piece.gradient, 10 * (comm.size - 1) / 2 + iteration)
                    piece.values[:] += 1
                    x += 1
                del piece
                shard.zero_gradients()
                with shard.gather("first") as values:
                    self.assertEqual(list(values), ["weight", "empty", "half"])
                    for name, x in values.items():
                        self.assertEqual((x.dtype, x.shape), (expected[name].dtype, expected[name].shape))
                        np.testing.assert_array_equal(x, expected[name])
                del x
                shard.finish()
            self.assertEqual(shard.stats().reduced_elements, 2 * 29)
            shard.close()
            comm.barrier()

        for size, sharding, stage in ((1, "flat", 3), (2, "flat", 1), (2, "rows", 3), (3, "flat", 2), (3, "flat", 3)):
            on_ranks(size, lambda comm: body(comm, sharding=sharding, stage=stage))
        on_ranks(4, lambda comm: body(comm, shard_ranks=2, reshard_ranks={"second": 1}))

    def test_rows_divisors_and_accumulation_over_copies(self):
        def body(comm):
            x = np.arange(50, dtype=np.float32).reshape(10, 5)
            with weft.train.Shard(
                comm, {"unit": {"x": x}}, sharding="rows", shard_ranks=2, divisor=2.0, reshard_ranks=1
            ) as shard:
                with shard.gather("unit") as values:
                    piece = shard.piece("x")
                    self.assertEqual((piece.begin, len(piece.values)), (25 * (comm.rank % 2), 25))
                    self.assertIsNone(piece.gradient)
                    for batch in range(2):
                        shard.gradient(0)[...] = comm.rank + batch
                        shard.reduce_scatter(0, accumulate=batch == 0)
                    self.assertEqual(values["x"][9, 4], 49)
                shard.finish()
                np.testing.assert_array_equal(shard.piece("x").gradient, (6 + 10) / 2)
                del piece

        on_ranks(4, body)

    def test_quantised_gathers_and_reductions(self):
        def body(comm):
            x = np.linspace(-1, 1, 512, dtype=np.float32)
            pattern = np.arange(512) % 8  # int4 can hold it
            with weft.train.Shard(comm, {"unit": {"x": x}}, gather_bits=8, reduce_bits=4, block_count=64) as shard:
                with shard.iteration():
                    with shard.gather("unit", backward=True) as values:
                        error = abs(values["x"] - x).max()
                        self.assertTrue(0 < error <= 1 / 254)
                        shard.gradient("x")[...] = (comm.rank + 1) * pattern
                    shard.reduce_scatter("unit")
                piece = shard.piece("x")
                own = slice(piece.begin, piece.begin + len(piece.values))
                np.testing.assert_array_equal(piece.values, x[own])
                np.testing.assert_array_equal(piece.gradient, (comm.size + 1) / 2 * pattern[own])
                del piece
                stats = shard.stats()
                others, part = comm.size - 1, 512 // comm.size
                blocks = part // 64
                self.assertEqual(stats.gathered_bytes, others * (part + 4 * blocks))
                self.assertEqual(stats.reduced_bytes, others * (part // 2 + 4 * blocks))
                self.assertEqual((stats.gathered_remote_bytes, stats.reduced_remote_bytes), (0, 0))

        for size in (1, 2, 4):
            on_ranks(size, body)

        def refused(comm):
            weft.train.Shard(comm, {"unit": {"x": np.zeros(3)}}, gather_bits=8)

        for error in errors_of_ranks(2, refused):
            self.assertEqual(error.id, "argument.config")

    def test_memoryviews_bfloat16_and_torch(self):
        def body(comm):
            units = {"views": [("view", memoryview(bytearray(12)).cast("f"))]}
            if ml_dtypes:
                units["bf16"] = {"x": np.full(5, 7, ml_dtypes.bfloat16)}
            if torch:
                units["torch"] = {"y": torch.full((3, 2), 5.0), "none": torch.zeros(0, dtype=torch.float64)}
            with weft.train.Shard(comm, units.items()) as shard:
                for unit in shard.units:
                    with shard.gather(unit, backward=True) as values:
                        for name in values:
                            self.assertIs(type(values[name]), type(dict(units[unit])[name]))
                            gradient, whole = shard.gradient(name), values[name]
                            for i in range(len(gradient)):
                                gradient[i] = whole[i]
                            del gradient, whole
                    shard.reduce_scatter(unit)
                shard.finish()
                for name, number in (("view", 0), ("x", 7), ("y", 5)):
                    if name in shard.parameters:
                        gradient = shard.piece(name).gradient
                        self.assertEqual([float(each) for each in gradient], [number] * len(gradient))
                        del gradient

        on_ranks(2, body)

    @unittest.skipUnless(torch, "needs torch")
    def test_parameters_of_torch_are_taken_as_they_are(self):
        def body(comm):
            model = torch.nn.Linear(3, 2)
            with torch.no_grad():
                for x in model.parameters():
                    x.fill_(2)
            named = dict(model.named_parameters())
            with weft.train.Shard(comm, {"unit": named}) as shard:
                with shard.gather("unit") as values:
                    self.assertEqual(float(values["weight"].sum()), 12)
                shard.finish()
            with weft.train.Ddp(comm, named) as ddp:
                with ddp.iteration():
                    for name, x in named.items():
                        ddp.gradient(name)[...] = comm.rank
                        ddp.ready(name)
                gradients = {name: torch.full(x.shape, 0.5) for name, x in named.items()}
                with weft.train.Optimizer("sgd", named, gradients=gradients) as optimizer:
                    optimizer.step(1.0)
            self.assertEqual(float(model.weight.detach().sum()), 9)
            norm = weft.train.gradient_norm({name: x for name, x in named.items()})
            self.assertAlmostEqual(norm, (8 * 1.5**2) ** 0.5, places=5)

        on_ranks(2, body)

    def test_mixed_precision(self):
        def body(comm):
            x = np.full(9, 1 + 2**-12, np.float32)
            types = {"parameter_type": np.float16, "reduce_type": np.float32, "output_type": np.float32}
            with weft.train.Shard(comm, {"unit": {"x": x}}, **types) as shard:
                with shard.gather("unit", backward=True) as values:
                    self.assertEqual((values["x"].dtype, values["x"].shape, values["x"][8]), (np.float16, (9,), 1))
                    gradient = shard.gradient("x")
                    self.assertEqual(gradient.dtype, np.float16)
                    gradient[:] = 2048 if comm.rank else 1
                    del gradient
                shard.reduce_scatter("unit")
                shard.finish()
                piece = shard.piece("x")
                np.testing.assert_array_equal(piece.values, x[: len(piece.values)])
                np.testing.assert_array_equal(piece.gradient, np.full(len(piece.values), 2049 / 2, np.float32))
                del piece
            with weft.train.Shard(comm, {"unit": {"x": x}}, output_type=np.float16) as shard:
                with shard.gather("unit", backward=True):
                    shard.gradient("x")[:] = comm.rank
                shard.reduce_scatter("unit")
                shard.finish()
                gradient = shard.piece("x").gradient
                self.assertEqual((gradient.dtype, set(gradient)), (np.float16, {0.5} if len(gradient) else set()))
                del gradient

        on_ranks(2, body)

    def test_processes_train(self):
        text = """
import numpy as np, weft
comm = weft.init()
with weft.train.Shard(comm, {"unit": {"weight": np.zeros(1001, np.float32)}}) as shard:
    for step in range(4):
        with shard.iteration():
            with shard.gather("unit", backward=True) as values:
                shard.gradient("weight")[:] = values["weight"] - comm.rank
            shard.reduce_scatter("unit")
        piece = shard.piece("weight")
        piece.values[:] -= 0.5 * piece.gradient
        shard.zero_gradients()
    print(round(float(piece.values[-1]), 2))
    del values, piece
comm.close()
"""
        self.assertEqual(run_job(3, text), ["0.94\n"] * 3)


class Errors(unittest.TestCase):
    def test_a_released_unit_a_wrong_name_and_a_wrong_order_are_errors_and_the_iteration_goes_on(self):
        def body(comm):
            with weft.train.Shard(comm, model(0)) as shard:
                with shard.gather("first", backward=True) as values:
                    self.assertEqual(len(values), 3)
                    with self.assertRaises(KeyError):
                        values["bias"]
                    refused = {
                        "train.unit": [lambda: shard.gather("first"), lambda: shard.parameter("bias"), shard.finish],
                        "train.iteration": [shard.zero_gradients],
                        "python.value": [lambda: shard.gather("third"), lambda: shard.piece("x")],
                        "argument.value": [lambda: shard.gather(2), lambda: shard.gradient(4), lambda: shard.piece(-1)],
                    }
                    for identifier, calls in refused.items():
                        for call in calls:
                            with self.assertRaises(weft.Error) as caught:
                                call()
                            self.assertEqual(caught.exception.id, identifier)
                for call in (lambda: values["weight"], values.release):
                    with self.assertRaises(weft.InvalidUsageError) as caught:
                        call()
                    self.assertEqual(caught.exception.id, "train.unit")
                shard.finish()

        on_ranks(1, body)

    def test_wrong_arguments_of_one_rank_are_errors_on_all_ranks(self):
        def body(comm):
            wrong = [
                {"units": {}},
                {"units": {"unit": {}}},
                {"units": 5},
                {"units": {"unit": {"x": b"1234"}}},
                {"units": {"unit": {"x": np.zeros(3, complex)}}},
                {"stage": 4},
                {"stage": "third"},
                {"sharding": "columns"},
                {"shard_ranks": 2},
                {"reshard_ranks": {"third": 1}},
                {"reshard_ranks": 2},
                {"divisor": -1.0},
                {"parameter_type": np.float16},
                {"units": [("unit", {"x": np.ones(3, np.float32)}), ("unit", {"y": np.ones(3, np.float32)})]},
            ]
            for each in wrong:
                with self.assertRaises((weft.Error, TypeError, RuntimeError, ValueError)) as caught:
                    weft.train.Shard(comm, **{"units": model(0), **(each if comm.rank == 1 else {})})
                if comm.rank != 1:
                    self.assertEqual((caught.exception.id, caught.exception.rank), ("train.model", 1), each)
                comm.barrier()
            weft.train.Shard(comm, model(0)).close()

        on_ranks(3, body)

    def test_an_exception_in_an_iteration_ends_it_on_all_ranks(self):
        def body(comm):
            shard = weft.train.Shard(comm, model(0))
            comm.barrier()
            with shard.iteration():
                with shard.gather("first", backward=True):
                    if comm.rank == 0:
                        raise KeyError("a batch")
                shard.reduce_scatter("first")

        def left(comm):
            with weft.train.Shard(comm, model(0)) as shard:
                comm.barrier()
                shard.gather("first").release()
                if comm.rank == 1:
                    raise KeyError("a batch")
                shard.gather("second").release()

        errors = errors_of_ranks(2, body)
        self.assertIsInstance(errors[0], KeyError)
        self.assertEqual((errors[1].id, errors[1].rank), ("abort.remote", 0))
        errors = errors_of_ranks(2, left)
        self.assertEqual((errors[0].id, type(errors[1])), ("abort.remote", KeyError))

    def test_the_death_of_a_process_ends_an_iteration_with_an_error_that_names_it(self):
        text = """
import os
import numpy as np, weft
comm = weft.init()
shard = weft.train.Shard(comm, {"unit": {"weight": np.zeros(100000, np.float32)}})
for step in range(3):
    if comm.rank == 1 and step == 2:
        os._exit(3)
    try:
        shard.gather(0, backward=True).release()
        shard.reduce_scatter(0)
        shard.finish()
    except weft.RemoteError as error:
        print(step, error.id, error.rank)
shard.close()
"""
        ends = end_job(start_job(3, text))
        self.assertEqual(ends[1][0], 3)
        for rank in (0, 2):
            self.assertEqual(ends[rank][:2], (0, "2 rank.died 1\n"), ends[rank])

    def test_close_in_an_iteration_is_an_error_on_other_ranks_also_while_an_array_lives(self):
        def body(comm):
            shard = weft.train.Shard(comm, model(0))
            piece = shard.piece("weight")
            shard.gather("first")
            comm.barrier()
            if comm.rank == 1:
                shard.close()
            else:
                with self.assertRaises(weft.Error) as caught:
                    shard.gather("second")
                self.assertEqual(caught.exception.id, "abort.remote")
            del piece

        on_ranks(2, body)

    def test_an_optimizer_takes_the_first_gradients_of_16_bits_later(self):
        def body(comm):
            units = {"layer": {"weight": np.ones((5, 3), np.float32)}}
            with weft.train.Shard(comm, units, parameter_type=np.float16, output_type=np.float16) as shard:
                pieces = {"weight": shard.piece("weight").values}
                optimizer = weft.train.Optimizer("sgd", pieces, shard=shard)
                with self.assertRaises(weft.Error):
                    optimizer.step(0.5)  # nothing is reduced yet
                for _ in range(2):
                    with shard.iteration():
                        with shard.gather("layer", backward=True):
                            shard.gradient("weight")[:] = 2 * comm.rank
                        shard.reduce_scatter("layer")
                    gradient = shard.piece("weight").gradient
                    self.assertEqual(gradient.dtype, np.float16)
                    optimizer.set_gradient("weight", gradient)
                    optimizer.step(0.5)
                    optimizer.set_gradient("weight", None)
                    del gradient
                    shard.zero_gradients()
                np.testing.assert_array_equal(pieces["weight"], np.full(len(pieces["weight"]), 2 - comm.size, np.float32))
                optimizer.close()
                del pieces

        for size in (1, 2, 3):
            on_ranks(size, body)

    def test_arrays_keep_their_memory(self):
        def body(comm):
            shard = weft.train.Shard(comm, {"unit": {"x": np.full(15, 2, np.float32)}})
            values = shard.piece("x").values
            del shard
            gc.collect()
            self.assertEqual(values.sum(), 30)
            del values
            gc.collect()
            with weft.train.Shard(comm, model(0)) as shard:
                with shard.gather("first", backward=True) as whole:
                    x = whole["weight"]
                    del whole
                shard.finish()
                piece = shard.piece("bias")
            shard.close()
            with self.assertRaises(weft.InvalidUsageError) as caught:
                shard.piece("bias")
            self.assertEqual(caught.exception.id, "python.closed")
            np.testing.assert_array_equal(piece.values, [3, 3, 3])
            end = weakref.ref(shard)
            del shard, x
            gc.collect()
            self.assertIsNotNone(end())
            del piece
            gc.collect()
            self.assertIsNone(end())
            shard = weft.train.Shard(comm, model(0))
            shard.close()
            shard.close()
            with self.assertRaises(weft.InvalidUsageError) as caught:
                shard.gather("first")
            self.assertEqual(caught.exception.id, "python.closed")

        on_ranks(1, body)


if __name__ == "__main__":
    unittest.main()
