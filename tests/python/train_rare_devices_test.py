"""Rare communication, the parameter server and batch norm with arrays on CUDA devices, on the fake driver. Host memory must
give the same numbers."""
import unittest

import numpy as np
import weft
from device_arrays import CudaStream, on_devices
from ranks import on_ranks
from train_devices_test import Memory, Numbers, get, in_both_memories


def model(memory):
    shapes = {"weight": ((3, 5), np.float32), "half": ((7,), np.float16), "bias": ((3,), np.float64)}
    return {name: memory.array(np.full(shape, memory.rank, kind)) for name, (shape, kind) in shapes.items()}


def add(memory, x, number):
    memory.write(x, memory.read(x) + np.asarray(number, memory.read(x).dtype))


class Local(unittest.TestCase):
    def test_averages_and_outer_steps_have_the_numbers_of_host_memory(self):
        def body(comm, memory):
            seen = []
            for settings in ({"warmup": 1}, {"method": "diloco", "delay": 1, "mix": 0.25}):
                parameters = model(memory)
                with weft.train.Local(comm, parameters, period=2, **settings) as local:
                    for step in range(5):
                        for x in parameters.values():
                            add(memory, x, comm.rank + step)
                        local.step(stream=memory.stream)
                    seen += [memory.read(x) for x in parameters.values()]
                    state = local.state_dict()["parameters"]
                    seen += [np.frombuffer(part or b"", np.uint8) for parts in state.values() for part in parts]
            return seen

        in_both_memories(self, 2, body)

    def test_training_goes_on_from_a_state(self):
        def body(comm, memory):
            parameters = model(memory)
            make = lambda: weft.train.Local(comm, parameters, period=3, method="diloco", delay=1)  # noqa: E731
            with make() as local:
                for step in range(3):
                    add(memory, parameters["weight"], comm.rank)
                    local.step(stream=memory.stream)
                state = local.state_dict()
                local.step(stream=memory.stream)
                wanted = memory.read(parameters["weight"])
            self.assertIsNotNone(state["parameters"]["weight"][2])
            add(memory, parameters["weight"], 7 * comm.rank)
            with make() as local:
                local.load_state_dict(state)
                local.step(stream=memory.stream)
                np.testing.assert_array_equal(memory.read(parameters["weight"]), wanted)
            return [wanted]

        in_both_memories(self, 2, body)


class ParameterServer(unittest.TestCase):
    def test_pushes_and_pulls_have_the_numbers_of_host_memory(self):
        def body(comm, memory):
            parameters = model(memory)
            gradients = {name: memory.array(np.ones_like(memory.read(x))) for name, x in parameters.items()}
            with weft.train.ParameterServer(comm, parameters, gradients=gradients, learning_rate=0.5) as server:
                if comm.rank == 0:
                    server.serve()
                else:
                    for step in range(3):
                        memory.write(gradients["weight"], np.full((3, 5), step, np.float32))
                        server.push(stream=memory.stream)
                        server.pull(stream=memory.stream)
                    server.finish()
            return [memory.read(x) for x in parameters.values()]

        seen = in_both_memories(self, 2, body)
        np.testing.assert_array_equal(seen[0][0], -0.5 * 3)

    def test_an_update_needs_arrays_of_host_memory(self):
        def body(comm):
            parameters = {"bias": Numbers(comm.rank, np.zeros(3, np.float32))}
            with self.assertRaises(weft.Error) as caught:
                weft.train.ParameterServer(comm, parameters, gradients=parameters, update=print)
            self.assertEqual(caught.exception.id, "python.device")

        on_devices(2, body)


class BatchNorm(unittest.TestCase):
    def test_statistics_have_the_numbers_of_host_memory(self):
        def run(comm, memory):
            random = np.random.default_rng(comm.rank)
            shape = (2 + comm.rank, 3, 5)
            x, dy = (memory.array(random.standard_normal(shape, np.float32)) for _ in range(2))
            kept = memory.array(np.zeros(3, np.float32))
            options = {"stream": memory.stream} if memory.stream else {}
            mean, invstd, count = weft.train.batch_norm_forward(x, comm, running_mean=kept, **options)
            self.assertEqual(count, 25)
            own, sums = weft.train.batch_norm_backward(x, dy, mean, comm, **options)
            if memory.stream:
                self.assertEqual((mean.shape, mean.dtype, mean.device.id), ((3,), "float32", comm.rank))
                counted = Numbers(comm.rank, np.zeros(1, np.int64))
                again = weft.train.batch_norm_forward(x, comm, count=counted, **options)
                memory.stream.wait()
                self.assertIs(again[2], counted)
                self.assertEqual(get(counted)[0], 25)
            return [memory.read(each) for each in (mean, invstd, kept, own, sums)]

        host = on_ranks(2, lambda comm: run(comm, Memory(comm.rank, False)))
        device = on_devices(2, lambda comm: run(comm, Memory(comm.rank, True)))
        for left, right in zip(sum(host, []), sum(device, [])):
            np.testing.assert_allclose(left, right, rtol=1e-6, atol=1e-6)

    def test_arrays_in_two_memories_are_refused(self):
        def body(comm):
            x = Numbers(comm.rank, np.ones((2, 3), np.float32))
            with self.assertRaises(weft.Error) as caught:
                weft.train.batch_norm_forward(x, comm, running_mean=np.zeros(3, np.float32), stream=CudaStream())
            self.assertEqual(caught.exception.id, "argument.device")

        on_devices(2, body)


if __name__ == "__main__":
    unittest.main()
