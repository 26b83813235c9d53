"""weft.train.Local: Local SGD and DiLoCo of numpy arrays, their checkpoints and errors."""
import unittest

import numpy as np
import weft
from ranks import on_ranks


def model(rank):
    return {"weight": np.full((3, 5), rank, np.float32), "bias": np.full(3, rank, np.float64)}


class Local(unittest.TestCase):
    def test_parameters_are_averaged_at_the_steps_of_the_rule(self):
        def body(comm):
            parameters = model(comm.rank)
            with weft.train.Local(comm, parameters, period=2, warmup=1) as local:
                self.assertEqual(parameters["weight"][2, 4], 0)
                seen = []
                for _ in range(4):
                    seen.append(local.accumulates)
                    for x in parameters.values():
                        x += comm.rank
                    seen.append(local.step())
                self.assertEqual(seen, [False, False, True, True, True, False, True, True])
                mean = (comm.size - 1) / 2
                for x in parameters.values():
                    np.testing.assert_array_equal(x, np.full(x.shape, 4 * mean, x.dtype))

        for size in (1, 2, 3):
            on_ranks(size, body)

    def test_post_local_sgd_with_an_optimizer_over_a_ddp(self):
        def body(comm):
            weight = np.full(3, 5, np.float32)
            wanted = [weight.copy() for _ in range(comm.size)]  # of all ranks
            velocity = [np.zeros(3, np.float32) for _ in range(comm.size)]
            with weft.train.Ddp(comm, {"weight": weight}) as ddp:
                local = weft.train.Local(comm, {"weight": weight}, period=2, warmup=3)
                optimizer = weft.train.Optimizer("sgd", {"weight": weight}, momentum=0.5, ddp=ddp, local=local)
                for step in range(8):
                    with ddp.iteration(accumulate=local.accumulates):
                        ddp.gradient("weight")[:] = weight - comm.rank
                        ddp.ready("weight")
                    optimizer.step(0.25)
                    local.step()
                    gradients = [x - rank for rank, x in enumerate(wanted)]
                    if step < 3:
                        gradients = [sum(gradients) / comm.size] * comm.size
                    for rank, gradient in enumerate(gradients):
                        velocity[rank] = velocity[rank] * 0.5 + gradient
                        wanted[rank] = wanted[rank] - 0.25 * velocity[rank]
                    if step >= 3 and (step - 3) % 2 == 0:
                        wanted = [sum(wanted) / comm.size] * comm.size
                    np.testing.assert_allclose(weight, wanted[comm.rank], rtol=1e-5)
                # A step of own gradients before the warm-up ends would not be post-local SGD.
                local.load_state_dict({"steps": 0, "parameters": local.state_dict()["parameters"]})
                with ddp.iteration(accumulate=True):
                    ddp.gradient("weight")[:] = 1
                    ddp.ready("weight")
                with self.assertRaises(weft.Error) as caught:
                    optimizer.step(0.25)
                self.assertEqual(caught.exception.id, "train.step")
                with self.assertRaises(weft.Error):
                    weft.train.Optimizer("sgd", {"weight": weight}, local=local)
                optimizer.close()
                local.close()

        for size in (1, 2, 3):
            on_ranks(size, body)

    def test_diloco_goes_on_from_its_state(self):
        def train(comm, local, parameters, first, last):
            for step in range(first, last):
                for x in parameters.values():
                    x += (comm.rank + 1) * (step % 3)
                local.step()

        def body(comm):
            settings = {"period": 4, "method": "diloco", "fragments": 2, "delay": 1, "fragment_of": [1, 0]}
            parameters = model(0)
            with weft.train.Local(comm, parameters, **settings) as local:
                train(comm, local, parameters, 0, 6)
                state = local.state_dict()
                saved = {name: x.copy() for name, x in parameters.items()}
                train(comm, local, parameters, 6, 9)
            self.assertEqual(state["steps"], 6)
            # A reduction of the second fragment was in progress after step 6: period / fragments divides it.
            self.assertIsNotNone(state["parameters"]["bias"][2])
            self.assertIsNone(state["parameters"]["weight"][2])
            other = model(5)
            with weft.train.Local(comm, other, **settings) as local:
                local.load_state_dict(state)
                for name, x in other.items():
                    x[...] = saved[name]
                train(comm, local, other, 6, 9)
            for name, x in parameters.items():
                np.testing.assert_array_equal(x, other[name])
            anchor = np.frombuffer(state["parameters"]["bias"][0], np.float64)
            self.assertEqual(anchor.shape, (3,))

        on_ranks(2, body)

    def test_wrong_settings_and_states_are_errors_with_ids(self):
        def body(comm):
            with self.assertRaises(weft.Error) as caught:
                weft.train.Local(comm, model(0), period=0 if comm.rank == 0 else 4)
            self.assertEqual(caught.exception.id, "argument.config" if comm.rank == 0 else "train.model")
            with self.assertRaises(weft.Error) as caught:
                fragment_of = [0] if comm.rank == 0 else [0, 0]
                weft.train.Local(comm, model(0), period=4, method="diloco", fragment_of=fragment_of)
            self.assertEqual(caught.exception.id, "python.value" if comm.rank == 0 else "train.model")
            with weft.train.Local(comm, model(0), period=4, method="diloco") as local:
                with self.assertRaises(weft.Error) as caught:
                    local.load_state_dict({"steps": 0, "parameters": {"other": (None, None, None)}})
                self.assertEqual(caught.exception.id, "python.value")
                state = local.state_dict()
                state["parameters"]["bias"] = (b"", b"", None)
                with self.assertRaises(weft.Error) as caught:
                    local.load_state_dict(state)
                self.assertEqual(caught.exception.id, "python.value")
                local.step()
            with self.assertRaises(weft.Error) as caught:
                local.step()
            self.assertEqual(caught.exception.id, "python.closed")

        on_ranks(2, body)

    def test_a_rank_that_leaves_by_an_exception_ends_the_others(self):
        def body(comm):
            try:
                with weft.train.Local(comm, model(0), period=1) as local:
                    local.step()
                    comm.barrier()
                    if comm.rank == 1:
                        raise RuntimeError("no more inputs")
                    with self.assertRaises(weft.RemoteError):
                        local.step()
            except RuntimeError:
                if comm.rank != 1:
                    raise

        on_ranks(2, body)


if __name__ == "__main__":
    unittest.main()
