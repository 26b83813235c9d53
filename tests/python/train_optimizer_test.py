"""weft.train's optimizers, norms, loss scale, batch norm and sampler, against numpy and torch."""
import gc
import math
import tempfile
import unittest

import numpy as np
import weft
from ranks import on_ranks

try:
    import torch
except ImportError:
    torch = None

train = weft.train


class Optimizers(unittest.TestCase):
    def test_a_step_of_each_algorithm_follows_its_formula(self):
        w, g = np.array([3, 4], np.float32), np.array([0.6, 0.8], np.float32)
        expected = {
            "sgd": w - 0.1 * g,
            "adam": w - 0.1 * np.sign(g),
            "adamw": w - 0.1 * np.sign(g),
            "lamb": w - 0.1 * 5 / math.sqrt(2) * np.sign(g),
            "lars": w - 0.1 * 0.001 * 5 * g,
        }
        for algorithm, values in expected.items():
            x = w.copy()
            with train.Optimizer(algorithm, {"x": x}, gradients={"x": g}) as optimizer:
                optimizer.step(0.1)
                optimizer.step(0.1, skip=True)
                self.assertEqual(optimizer.steps("x"), 1)
            np.testing.assert_allclose(x, values, rtol=1e-5)

    def test_states_have_the_names_and_shapes_of_torch_and_are_restored(self):
        x, g = np.ones((2, 3), np.float32), np.full((2, 3), 0.5, np.float32)
        saved = train.Optimizer("adamw", {"x": x}, gradients={"x": g}, weight_decay=0.1)
        for _ in range(3):
            saved.step(0.1)
        other = x.copy()
        restored = train.Optimizer("adamw", [("x", other)], gradients={"x": g}, weight_decay=0.1)
        self.assertEqual(list(saved.state("x")), ["exp_avg", "exp_avg_sq"])
        for name, values in saved.state("x").items():
            self.assertEqual(values.shape, (2, 3))
            restored.state("x")[name][...] = values
        restored.set_steps("x", saved.steps("x"))
        saved.step(0.1)
        restored.step(0.1)
        np.testing.assert_array_equal(x, other)
        kept = saved.state("x")["exp_avg"]
        with self.assertRaisesRegex(weft.Error, "python.closed"):
            saved.close()
        del kept, values
        gc.collect()
        saved.close()
        with self.assertRaisesRegex(weft.Error, "python.closed"):
            saved.step(0.1)
        restored.close()

    def test_states_in_a_file_are_those_in_memory(self):
        random = np.random.default_rng(7)
        first = random.standard_normal((50, 31)).astype(np.float32)
        g = random.standard_normal((50, 31)).astype(np.float32)
        for values in False, True:
            x, other, half, copy = first.copy(), first.copy(), np.zeros_like(g, np.float16), np.zeros_like(g, np.float16)
            memory = train.Optimizer("adamw", {"x": x}, gradients={"x": g}, copies={"x": half})
            with tempfile.TemporaryDirectory() as folder:
                disk = train.Optimizer(
                    "adamw", {"x": other}, gradients={"x": g}, copies={"x": copy}, offload=folder, offload_values=values,
                    offload_chunk=1024, offload_buffers=2, offload_engine="threads",
                )
                if values:
                    other[...] = np.nan
                for _ in range(2):
                    memory.step(0.1)
                    disk.step(0.1)
                state = disk.read_state("x")
                self.assertEqual(list(state), ["exp_avg", "exp_avg_sq"] + ["values"] * values)
                for name, expected in memory.read_state("x").items():
                    np.testing.assert_array_equal(state[name], expected)
                np.testing.assert_array_equal(copy, half)
                np.testing.assert_array_equal(state["values"] if values else other, x)
                disk.write_state("x", {"exp_avg": np.ones_like(x)})
                np.testing.assert_array_equal(disk.read_state("x")["exp_avg"], np.ones_like(x))
                np.testing.assert_array_equal(disk.read_state("x")["exp_avg_sq"], state["exp_avg_sq"])
                with self.assertRaisesRegex(weft.Error, "train.offload-state"):
                    disk.state("x")
                with self.assertRaisesRegex(weft.Error, "python.value"):
                    disk.write_state("x", {"none": x})
                with self.assertRaisesRegex(weft.Error, "python.size"):
                    disk.write_state("x", {"exp_avg": x[0]})
                disk.close()
            memory.close()
        with self.assertRaisesRegex(weft.Error, "train.offload"):
            train.Optimizer("adamw", {"x": x}, gradients={"x": g}, offload="/no/such/folder")
        with self.assertRaisesRegex(weft.Error, "python.value"):
            train.Optimizer("adamw", {"x": x}, gradients={"x": g}, offload="/", offload_engine="tape")

    def test_it_trains_with_the_gradients_of_a_ddp_and_refuses_a_step_in_an_accumulation(self):
        def body(comm):
            x = np.ones(3, np.float32)
            ddp = train.Ddp(comm, {"x": x})
            optimizer = train.Optimizer("sgd", {"x": x}, ddp=ddp, momentum=0.5)
            for accumulate in (True, False):
                with ddp.iteration(accumulate=accumulate):
                    ddp.gradient("x")[:] += 1 + comm.rank
                    ddp.ready("x")
                self.assertEqual(ddp.reduced(), not accumulate)
                if accumulate:
                    with self.assertRaisesRegex(weft.Error, "train.step"):
                        optimizer.step(0.5)
            optimizer.step(0.5)
            np.testing.assert_array_equal(x, np.full(3, -0.5, np.float32))
            optimizer.close()
            ddp.close()

        on_ranks(2, body)

    def test_one_bit_lamb_asks_its_hook(self):
        def body(comm):
            w = np.full(40, 0.5, np.float32)
            hook = train.Compressor("onebit", start_iteration=5, momentum=0.9, layer_scales=True)
            with self.assertRaisesRegex(weft.InvalidArgumentError, "config.biasCorrection"):
                train.Optimizer("onebit_lamb", {"w": w}, compressor=hook)
            with train.Ddp(comm, {"w": w}, hook=hook) as ddp, train.Optimizer(
                "onebit_lamb", {"w": w}, ddp=ddp, compressor=hook, bias_correction=False
            ) as lamb:
                for step in range(40):
                    with ddp.iteration():
                        ddp.gradient("w")[:] = w - 1
                        ddp.ready("w")
                    lamb.step(0.02)
                    self.assertEqual(hook.compressed(), step >= 5)
                    mean, factor = lamb.trust("w")
                    self.assertEqual(factor > 0, step >= 5)
                self.assertEqual(list(lamb.state("w")), ["exp_avg", "exp_avg_sq", "exp_avg_sq_fresh"])
                lamb.set_trust("w", 2 * mean, factor)
                self.assertEqual(lamb.trust("w"), (2 * mean, factor))
            self.assertLess(abs(w - 1).max(), 0.45)

        on_ranks(2, body)

    def test_it_steps_the_pieces_of_a_sharded_model(self):
        def body(comm):
            shard = train.Shard(comm, {"all": {"x": np.ones(40, np.float32)}})
            with shard.gather("all", backward=True):
                shard.gradient("x")[:] = 1 + comm.rank
                self.assertFalse(shard.reduced())
            shard.reduce_scatter("all")
            shard.finish()
            self.assertTrue(shard.reduced())
            piece = shard.piece("x")
            optimizer = train.Optimizer("sgd", {"x": piece.values}, gradients={"x": piece.gradient}, shard=shard)
            optimizer.step(0.5)
            np.testing.assert_array_equal(piece.values, np.full(len(piece.values), 0.25, np.float32))
            optimizer.close()
            del piece
            with shard.gather("all") as values:
                np.testing.assert_array_equal(values["x"], np.full(40, 0.25, np.float32))
                other = train.Optimizer("sgd", {"x": np.ones(1, np.float32)}, shard=shard)
                with self.assertRaisesRegex(weft.Error, "train.step"):
                    other.step(0.5)
                other.close()
            del values
            shard.finish()
            shard.close()

        on_ranks(2, body)

    def test_layer_norms_are_those_of_all_shards(self):
        def body(comm):
            whole = np.arange(1, 7, dtype=np.float32)
            part = whole[comm.rank * 2 : comm.rank * 2 + 2].copy()
            x = whole.copy()
            gradient = np.full(6, 0.5, np.float32)
            sharded = train.Optimizer(
                "lamb", {"x": part}, gradients={"x": gradient[:2]}, axes=[comm], sharded={"x": [0]}, weight_decay=0.1
            )
            single = train.Optimizer("lamb", {"x": x}, gradients={"x": gradient}, weight_decay=0.1)
            for _ in range(3):
                sharded.step(0.1)
                single.step(0.1)
            np.testing.assert_allclose(part, x[comm.rank * 2 : comm.rank * 2 + 2], rtol=1e-6)

        on_ranks(3, body)

    def test_wrong_arguments_are_refused(self):
        x = np.ones(2, np.float32)
        for change in (
            {"algorithm": "rmsprop"},
            {"gradients": {"y": x}},
            {"copies": {"y": x}},
            {"sharded": {"x": [0]}},
            {"gradients": {"x": np.ones(3, np.float32)}},
            {"gradients": {"x": np.ones(2)}},
            {"copies": {"x": np.ones(2, np.float32)}},
            {"parameters": {"x": np.ones(2)}},
            {"momentum": -1.0},
        ):
            with self.assertRaises(weft.Error, msg=str(change)):
                train.Optimizer(**{"algorithm": "sgd", "parameters": {"x": x}, **change})
        optimizer = train.Optimizer("sgd", {"x": x})
        for call in (lambda: optimizer.step(-1.0), lambda: optimizer.state("y"), lambda: optimizer.set_gradient("x", np.ones(2))):
            self.assertRaises(weft.Error, call)

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_it_computes_what_torch_computes(self):
        made = {
            "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
            "adam": lambda p: torch.optim.Adam(p, 0.1, weight_decay=0.01),
            "adamw": lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.01),
        }
        for algorithm, make in made.items():
            torch.manual_seed(0)
            theirs = torch.nn.Parameter(torch.randn(50))
            ours, gradient = theirs.detach().clone(), torch.empty(50)
            copy = torch.empty(50, dtype=torch.bfloat16)
            momentum = {"momentum": 0.9, "nesterov": True} if algorithm == "sgd" else {}
            optimizer = train.Optimizer(
                algorithm, {"x": ours}, gradients={"x": gradient}, copies={"x": copy}, weight_decay=0.01, **momentum
            )
            reference = make([theirs])
            for _ in range(5):
                gradient.copy_(torch.randn(50))
                theirs.grad = gradient.clone()
                reference.step()
                optimizer.step(0.1)
            torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(copy, ours.bfloat16(), rtol=0, atol=0)


class Norms(unittest.TestCase):
    def test_the_norm_of_sharded_gradients_is_that_of_the_whole(self):
        def body(comm):
            gradients = {"a": np.full(2, 1 + comm.rank, np.float32), "b": np.full(3, 2, np.float16)}
            whole = np.array([1, 1, 2, 2, 2, 2, 2], np.float64)
            for p in (1, 2, math.inf):
                norm = train.gradient_norm(gradients, axes=[comm], sharded={"a": [0]}, p=p)
                self.assertAlmostEqual(norm, np.linalg.norm(whole, p))
            norm = train.gradient_norm(gradients, axes=[comm], sharded={"a": [0]})
            train.clip_gradients(gradients, norm, 1.0)
            np.testing.assert_allclose(gradients["a"], (1 + comm.rank) / norm, rtol=1e-5)
            with self.assertRaisesRegex(weft.Error, "train.norm"):
                train.clip_gradients(gradients, math.nan, 1.0, error_if_nonfinite=True)

        on_ranks(2, body)

    def test_the_scale_falls_on_all_ranks_and_grows_again(self):
        def body(comm):
            gradient = np.ones(4, np.float16)
            with train.Scaler([comm], growth_interval=1, least_scale=32768.0) as scaler:
                gradient[3] = np.inf if comm.rank else 1
                self.assertTrue(scaler.unscale({"x": gradient}, divide=False))
                scaler.update()
                self.assertEqual(scaler.scale, 32768)
                gradient[3] = 1
                with self.assertRaisesRegex(weft.Error, "argument.datatype"):
                    scaler.unscale({"x": gradient})
                self.assertEqual(float(gradient[0]), 1)
                wide = gradient.astype(np.float32)
                self.assertFalse(scaler.unscale({"x": wide}))
                self.assertEqual(float(wide[0]), 1 / 32768)
                scaler.update()
                self.assertEqual((scaler.scale, scaler.good_steps), (65536, 0))
                scaler.restore(32768, 0)
                gradient[0] = np.nan
                scaler.unscale({"x": gradient}, divide=False)
                with self.assertRaisesRegex(weft.Error, "train.loss-scale"):
                    scaler.update()

        on_ranks(2, body)


class Statistics(unittest.TestCase):
    def test_batch_norm_over_ranks_is_that_of_one_process_also_with_an_empty_rank(self):
        random = np.random.default_rng(1)
        x = random.standard_normal((5, 2, 3)).astype(np.float32)
        dy = random.standard_normal((5, 2, 3)).astype(np.float32)
        parts = (slice(0, 3), slice(3, 3), slice(3, 5))

        def body(comm):
            own = parts[comm.rank]
            running = np.zeros(2, np.float32), np.ones(2, np.float32)
            mean, invstd, count = train.batch_norm_forward(
                x[own], comm, running_mean=running[0], running_variance=running[1]
            )
            self.assertEqual(count, 15)
            np.testing.assert_allclose(mean, x.mean((0, 2)), rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(invstd, 1 / np.sqrt(x.var((0, 2)) + 1e-5), rtol=1e-5)
            np.testing.assert_allclose(running[1], 0.9 + 0.1 * x.var((0, 2), ddof=1), rtol=1e-5)
            local, sums = train.batch_norm_backward(x[own], dy[own], mean, comm)
            centred = dy * (x - mean[:, None])
            np.testing.assert_allclose(sums, [dy.sum((0, 2)), centred.sum((0, 2))], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(local[0], dy[own].sum((0, 2)), rtol=1e-4, atol=1e-5)

        on_ranks(3, body)

    def test_each_rank_samples_as_torch_says(self):
        def samples(*arguments, **options):
            return list(train.DistributedSampler(*arguments, shuffle=False, **options))

        self.assertEqual([samples(10, 4, r) for r in range(4)], [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]])
        self.assertEqual([samples(range(10), 4, r, drop_last=True) for r in (0, 3)], [[0, 4], [3, 7]])
        self.assertEqual([samples(2, 5, r) for r in range(5)], [[0], [1], [0], [1], [0]])
        orders = []
        for epoch in range(2):
            taken = []
            for rank in range(3):
                sampler = train.DistributedSampler(9, 3, rank, seed=4)
                sampler.set_epoch(epoch)
                self.assertEqual(len(sampler), 3)
                taken += list(sampler)
            self.assertEqual(sorted(taken), list(range(9)))
            orders.append(taken)
        self.assertNotEqual(*orders)
        with self.assertRaises(weft.Error):
            train.DistributedSampler(9, 3, 3)


if __name__ == "__main__":
    unittest.main()
