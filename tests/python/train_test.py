"""weft.train: data-parallel training of numpy and torch arrays, hooks, Join, and errors."""
import ctypes
import gc
import threading
import unittest

import numpy as np
import weft
from ranks import LONG, end_job, errors_of_ranks, on_ranks, run_job, start_job

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

try:
    import torch
except ImportError:
    torch = None


def model(rank):
    return {
        "weight": np.full((3, 5), rank, np.float32),
        "empty": np.zeros(0, np.float32),
        "half": np.full(7, rank, np.float16),
        "bias": np.full(3, rank, np.float64),
    }


def step(ddp, comm, iteration, names=("bias", "half", "empty", "weight"), **options):
    with ddp.iteration(**options):
        for name in names:
            ddp.gradient(name)[...] = 10 * comm.rank + iteration
            ddp.ready(name)


def mean(size, iteration):
    return 10 * (size - 1) / 2 + iteration


class Averages(unittest.TestCase):
    def test_gradients_are_averaged_and_have_the_shapes_of_their_parameters(self):
        def body(comm):
            parameters = model(comm.rank)
            ddp = weft.train.Ddp(comm, parameters, bucket_cap_bytes=16)
            self.assertEqual(parameters["weight"][2, 4], 0)
            for iteration in range(3):
                step(ddp, comm, iteration)
                for name, x in parameters.items():
                    gradient = ddp.gradient(name)
                    self.assertEqual((gradient.shape, gradient.dtype), (x.shape, x.dtype))
                    np.testing.assert_array_equal(gradient, np.full(x.shape, mean(comm.size, iteration), x.dtype))
            self.assertEqual([ddp.bucket(name) for name in ("half", "bias", "weight")], [1, 0, 2])
            self.assertEqual(ddp.bucket(0), ddp.bucket("weight"))
            del gradient
            ddp.close()
            comm.barrier()

        for size in (1, 2, 3):
            on_ranks(size, body)

    def test_the_callers_own_gradients_are_read_and_written(self):
        def body(comm):
            own = {"bias": np.zeros(3)}
            with weft.train.Ddp(comm, model(comm.rank).items(), gradients=own) as ddp:
                self.assertIs(ddp.gradient("bias"), own["bias"])
                for iteration in range(2):
                    step(ddp, comm, iteration)
                    np.testing.assert_array_equal(own["bias"], np.full(3, 5.0 + iteration))

        on_ranks(2, body)

    def test_gradients_of_ctypes_arrays_have_their_type(self):
        def body(comm):
            seen = []

            def hook(bucket):
                seen.append(bucket.data.format)
                bucket.data[0] = 7.0

            parameters = {"rows": ((ctypes.c_float * 2) * 3)()}
            with weft.train.Ddp(comm, parameters, hook=hook) as ddp:
                with ddp.iteration():
                    gradient = ddp.gradient("rows")
                    gradient[0] = gradient[5] = 1.5
                    ddp.ready("rows")
                self.assertEqual(gradient.tolist(), [7.0, 0, 0, 0, 0, 1.5])
                del gradient
            self.assertEqual(seen, ["f"])

        on_ranks(2, body)

    def test_accumulation_sends_nothing_and_buffers_come_from_rank_0(self):
        def body(comm):
            buffers = {"steps": np.full(2, comm.rank, np.int64)}
            with weft.train.Ddp(comm, model(comm.rank), buffers=buffers) as ddp:
                buffers["steps"][:] = comm.rank + 1
                step(ddp, comm, 1, accumulate=True)
                self.assertEqual(buffers["steps"][0], comm.rank + 1)
                self.assertEqual(ddp.gradient("weight")[0, 0], 10 * comm.rank + 1)
                with ddp.iteration():
                    self.assertEqual(buffers["steps"][1], 1)
                    for name in ("weight", "empty", "half", "bias"):
                        ddp.gradient(name)[...] += 100
                    ddp.ready_all(["bias"])
                    ddp.ready_all(name for name in ("weight", "empty", "half"))
                self.assertEqual(ddp.gradient("weight")[0, 0], 106)
                self.assertEqual(ddp.bucket_count, 3)
                ddp.zero_gradients()
                self.assertEqual(ddp.gradient("weight").sum(), 0)

        on_ranks(2, body)

    def test_unused_gradients_static_graphs_and_joined_ranks(self):
        def body(comm):
            with weft.train.Ddp(comm, model(comm.rank), find_unused=True, join=True, divide_by_active=True) as ddp:
                for iteration in range(1 + comm.rank):
                    names = ("half", "weight") if comm.rank else ("half",)
                    step(ddp, comm, iteration, names)
                    self.assertEqual((ddp.used("half"), ddp.used("weight"), ddp.used("bias")), (True, True, False))
                    active = [rank for rank in range(comm.size) if rank >= iteration]
                    expected = sum(10 * rank + iteration for rank in active) / len(active)
                    np.testing.assert_allclose(ddp.gradient("half"), expected, rtol=1e-3)
                ddp.join()
            with weft.train.Ddp(comm, model(comm.rank), static_graph=True) as ddp:
                for iteration in range(3):
                    step(ddp, comm, iteration, ("weight", "bias", "weight"))
                    self.assertEqual(ddp.gradient("bias")[0], mean(comm.size, iteration))

        on_ranks(3, body)

    def test_bfloat16_bytes_and_torch(self):
        def body(comm):
            parameters = {"list": bytearray(8)}
            with self.assertRaises(weft.InvalidArgumentError) as caught:
                weft.train.Ddp(comm, parameters)
            self.assertEqual(caught.exception.id, "argument.datatype")
            parameters = {"view": memoryview(bytearray(8)).cast("f")}
            if ml_dtypes:
                parameters["bf16"] = np.zeros(5, ml_dtypes.bfloat16)
            with weft.train.Ddp(comm, parameters) as ddp:
                with ddp.iteration():
                    for name in parameters:
                        gradient = ddp.gradient(name)
                        for i in range(len(gradient)):
                            gradient[i] = 2 * comm.rank
                    ddp.ready_all()
                for name in parameters:
                    self.assertEqual([float(each) for each in ddp.gradient(name)], [1.0] * len(parameters[name]))
                del gradient

        on_ranks(2, body)

    @unittest.skipUnless(torch, "torch is not installed")
    def test_autograd_of_torch_writes_into_the_buckets(self):
        def body(comm):
            layer = torch.nn.Linear(3, 2)
            named = [(name, parameter.data) for name, parameter in layer.named_parameters()]
            with weft.train.Ddp(comm, named) as ddp:
                for parameter in layer.parameters():
                    parameter.register_post_accumulate_grad_hook(
                        lambda given: ddp.ready("bias" if given.dim() == 1 else "weight")
                    )
                for iteration in range(3):
                    ddp.begin()
                    for name, parameter in layer.named_parameters():
                        parameter.grad = ddp.gradient(name).zero_()
                    layer(torch.full((1, 3), float(comm.rank + iteration))).sum().backward()
                    ddp.finish()
                    self.assertTrue(torch.equal(layer.weight.grad, torch.full((2, 3), iteration + 0.5)))
                layer.weight.grad = layer.bias.grad = None

        on_ranks(2, body)

    def test_processes_train(self):
        text = """
import numpy as np, weft
comm = weft.init()
weight = np.zeros(1000, np.float32)
with weft.train.Ddp(comm, {"weight": weight}, hook="bfloat16") as ddp:
    for step in range(4):
        with ddp.iteration():
            ddp.gradient("weight")[:] = weight - comm.rank
            ddp.ready("weight")
        weight -= 0.5 * ddp.gradient("weight")
print(round(float(weight[999]), 2))
comm.close()
"""
        self.assertEqual(run_job(3, text), ["0.94\n"] * 3)


class Hooks(unittest.TestCase):
    def test_a_hook_sees_each_bucket_and_its_calls_reach_all_ranks(self):
        def body(comm):
            names = []

            def hook(bucket):
                names.append((bucket.index, bucket.names, bucket.offsets, bucket.divisor, bucket.layout))
                bucket.average("float16" if bucket.layout else None)

            with weft.train.Ddp(comm, model(comm.rank), hook=hook, bucket_cap_bytes=1) as ddp:
                for iteration in range(2):
                    step(ddp, comm, iteration)
                    np.testing.assert_array_equal(ddp.gradient("bias"), np.full(3, mean(comm.size, iteration)))
            self.assertEqual(
                names,
                [(0, ["bias"], [0], 2, 0), (1, ["half"], [0], 2, 0), (2, ["weight", "empty"], [0, 15], 2, 0)]
                + [(0, ["bias"], [0], 2, 1), (1, ["half"], [0], 2, 1), (2, ["empty", "weight"], [0, 0], 2, 1)],
            )

        on_ranks(2, body)

    def test_an_exception_of_a_hook_is_the_cause_of_the_error_and_ends_all_ranks(self):
        def body(comm):
            def hook(bucket):
                if comm.rank == 1:
                    raise ZeroDivisionError("no such number")
                bucket.average()

            ddp = weft.train.Ddp(comm, model(comm.rank), hook=hook)
            comm.barrier()
            try:
                step(ddp, comm, 0)
            finally:
                gc.collect()
                ddp.close()

        errors = errors_of_ranks(2, body)
        self.assertEqual([error.id for error in errors], ["abort.remote", "train.hook"])
        self.assertIsInstance(errors[1].__cause__, ZeroDivisionError)

    def test_a_bucket_is_closed_after_its_hook(self):
        def body(comm):
            kept = []

            def hook(bucket):
                kept.append(bucket)

            with weft.train.Ddp(comm, model(comm.rank), hook=hook) as ddp:
                step(ddp, comm, 0)
            with self.assertRaises(weft.InvalidUsageError):
                kept[0].index
            with self.assertRaises(weft.InvalidUsageError):
                kept[0].comm.barrier()

        on_ranks(1, body)

    def test_a_ddp_may_lose_its_last_reference_before_or_in_its_hook(self):
        def body(comm):
            runs, may_end = threading.Event(), threading.Event()

            def hook(bucket):
                runs.set()
                may_end.wait(LONG)

            def iteration_that_fails(waits):
                ddp = weft.train.Ddp(comm, model(0), hook=hook, bucket_cap_bytes=1)
                ddp.begin()
                ddp.ready_all()
                if waits:
                    runs.wait(LONG)
                raise KeyError("a batch")

            may_end.set()
            for _ in range(5):
                with self.assertRaises(KeyError):
                    iteration_that_fails(False)
            runs.clear()
            may_end.clear()
            with self.assertRaises(KeyError):
                iteration_that_fails(True)
            may_end.set()
            comm.barrier()

        on_ranks(1, body)

    def test_an_array_over_scratch_memory_keeps_it(self):
        def body(comm):
            kept = []

            def hook(bucket):
                kept.append(np.asarray(bucket.scratch(8 << 20)))

            with self.assertRaises(weft.InvalidUsageError) as caught:
                with weft.train.Ddp(comm, model(comm.rank), hook=hook) as ddp:
                    step(ddp, comm, 0)
            self.assertIn("keeps an array", str(caught.exception.__cause__))
            del ddp
            gc.collect()
            self.assertEqual(kept[0].sum(), 0)

        on_ranks(1, body)

    def test_compressors_send_less_and_their_state_can_be_kept(self):
        settings = {
            "powersgd": dict(rank=2, least_rate=0.5, warm_start=False, seed=3),
            "topk": dict(density=0.4),
            "onebit": dict(momentum=0),
            "int8": dict(block_count=8),
            "float8": dict(float8="float8_e5m2"),
        }

        def body(comm):
            for method, chosen in settings.items():
                compressor = weft.train.Compressor(method, start_iteration=1, **chosen)
                with weft.train.Ddp(comm, model(comm.rank), hook=compressor, bucket_cap_bytes=16) as ddp:
                    for iteration in range(3):
                        step(ddp, comm, iteration)
                        self.assertAlmostEqual(ddp.gradient("bias")[0], mean(comm.size, iteration), delta=2)
                    self.assertTrue(compressor.compressed())
                    state = compressor.save()
                    compressor.load(state)
                with self.assertRaises(weft.InvalidUsageError) as caught:
                    compressor.load(state[:-1])
                self.assertEqual(caught.exception.id, "train.compressor")
            with self.assertRaisesRegex(weft.InvalidArgumentError, "method is zip"):
                weft.train.Compressor("zip")
            with self.assertRaisesRegex(weft.InvalidArgumentError, "config.rank is 0"):
                weft.train.Compressor("powersgd", rank=0)

        on_ranks(2, body)

    def test_a_function_compresses_its_bucket(self):
        def body(comm):
            compressor = weft.train.Compressor("int8", error_feedback=False)

            def hook(bucket):
                bucket.data[:] *= 2
                bucket.compress(compressor)

            with weft.train.Ddp(comm, {"x": np.zeros(9, np.float32)}, hook=hook) as ddp:
                step(ddp, comm, 1, ["x"])
                np.testing.assert_allclose(ddp.gradient("x"), 2 * mean(comm.size, 1), rtol=0.01)

        on_ranks(2, body)

    def test_unknown_hooks_and_names_are_refused(self):
        def body(comm):
            with self.assertRaisesRegex(weft.InvalidArgumentError, "hook is fp4"):
                weft.train.Ddp(comm, model(0), hook="fp4")
            with self.assertRaisesRegex(weft.InvalidArgumentError, "no parameter is named 'w'"):
                weft.train.Ddp(comm, model(0), gradients={"w": np.zeros(1)})
            with weft.train.Ddp(comm, model(0)) as ddp:
                for call in (ddp.gradient, ddp.ready, ddp.used, ddp.bucket):
                    for wrong in ("w", 4, -1):
                        with self.assertRaises(weft.InvalidArgumentError):
                            call(wrong)

        on_ranks(1, body)


class Errors(unittest.TestCase):
    def test_different_models_are_an_error_that_names_both_ranks(self):
        def body(comm):
            parameters = model(0)
            if comm.rank == 2:
                parameters["bias"] = np.zeros(4)
            weft.train.Ddp(comm, parameters)

        for error in errors_of_ranks(3, body):
            self.assertEqual((type(error), error.id, error.rank, error.peer), (weft.MismatchError, "train.model", 2, 0))
            self.assertIn('"bias"', str(error))

    def test_arguments_that_one_rank_refuses_are_an_error_on_all_and_comm_lives_on(self):
        wrong = (
            dict(gradients={"w": np.zeros(1)}),
            dict(gradients={"bias": np.zeros(2)}),
            dict(hook="fp4"),
            dict(bucket_cap_bytes=-1),
            dict(buffers={"steps": "text"}),
        )

        def body(comm):
            for each in wrong:
                with self.assertRaises((weft.Error, TypeError, RuntimeError, OverflowError)) as caught:
                    weft.train.Ddp(comm, model(0), **(each if comm.rank == 1 else {}))
                if comm.rank != 1:
                    self.assertEqual((caught.exception.id, caught.exception.rank), ("train.model", 1))
                comm.barrier()

        on_ranks(3, body)

    def test_an_exception_in_an_iteration_ends_it_on_all_ranks(self):
        states = [None, None]

        def body(comm):
            ddp = weft.train.Ddp(comm, model(0), broadcast_buffers=False)
            self.assertIsNone(ddp.async_error())
            comm.barrier()
            try:
                with ddp.iteration():
                    if comm.rank == 0:
                        raise KeyError("a batch")
                    for name in ("weight", "empty", "half", "bias"):
                        ddp.ready(name)
            finally:
                states[comm.rank] = ddp.async_error()

        errors = errors_of_ranks(2, body)
        self.assertIsInstance(errors[0], KeyError)
        self.assertEqual([state.id for state in states], ["train.aborted", "abort.remote"])
        self.assertEqual((errors[1].id, errors[1].rank), ("abort.remote", 0))

    def test_a_missing_report_and_an_exception_in_with_end_the_ddp_on_all_ranks(self):
        def missing(comm):
            ddp = weft.train.Ddp(comm, model(0), broadcast_buffers=False)
            comm.barrier()
            with ddp.iteration():
                ddp.ready_all(("weight", "empty", "half", "bias")[comm.rank :])

        def left(comm):
            with weft.train.Ddp(comm, model(0), broadcast_buffers=False) as ddp:
                comm.barrier()
                ddp.begin()
                if comm.rank == 1:
                    raise KeyError("a batch")
                ddp.ready_all()
                ddp.finish()

        def closed(comm):
            with weft.train.Ddp(comm, model(0)) as ddp:
                ddp.close()
                raise KeyError("a batch")

        errors = errors_of_ranks(2, missing)
        self.assertEqual([error.id for error in errors], ["abort.remote", "train.missing-gradient"])
        errors = errors_of_ranks(2, left)
        self.assertEqual((errors[0].id, type(errors[1])), ("abort.remote", KeyError))
        self.assertIsInstance(errors_of_ranks(1, closed)[0], KeyError)

    def test_the_death_of_a_process_ends_an_iteration_with_an_error_that_names_it(self):
        text = """
import os
import numpy as np, weft
comm = weft.init()
ddp = weft.train.Ddp(comm, {"weight": np.zeros(100000, np.float32)})
for step in range(3):
    ddp.begin()
    if comm.rank == 1 and step == 2:
        os._exit(3)
    ddp.ready(0)
    try:
        ddp.finish()
    except weft.RemoteError as error:
        print(step, error.id, error.rank)
ddp.close()
"""
        ends = end_job(start_job(3, text))
        self.assertEqual(ends[1][0], 3)
        for rank in (0, 2):
            self.assertEqual(ends[rank][:2], (0, "2 rank.died 1\n"), ends[rank])

    def test_missing_and_repeated_reports_are_errors_and_the_iteration_goes_on(self):
        def body(comm):
            with weft.train.Ddp(comm, model(0)) as ddp:
                with self.assertRaises(weft.InvalidUsageError) as caught:
                    ddp.finish()
                self.assertEqual(caught.exception.id, "train.iteration")
                ddp.begin()
                for name in ("weight", "empty", "half"):
                    ddp.ready(name)
                for call, identifier in ((lambda: ddp.ready("half"), "train.reported-twice"), (ddp.finish, "train.missing-gradient")):
                    with self.assertRaises(weft.InvalidUsageError) as caught:
                        call()
                    self.assertEqual(caught.exception.id, identifier)
                ddp.ready("bias")
                ddp.finish()

        on_ranks(1, body)

    def test_gradients_keep_their_memory(self):
        def body(comm):
            ddp = weft.train.Ddp(comm, model(0))
            gradient = ddp.gradient("weight")
            with self.assertRaisesRegex(weft.InvalidUsageError, "Delete them first"):
                ddp.close()
            del ddp
            gc.collect()
            gradient[:] = 1
            self.assertEqual(gradient.base is not None and gradient.sum(), 15)
            del gradient
            gc.collect()
            ddp = weft.train.Ddp(comm, model(0))
            ddp.close()
            ddp.close()
            with self.assertRaises(weft.InvalidUsageError) as caught:
                ddp.begin()
            self.assertEqual(caught.exception.id, "python.closed")

        on_ranks(1, body)


if __name__ == "__main__":
    unittest.main()
