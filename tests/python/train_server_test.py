"""weft.train.ParameterServer: pushes, pulls, the caller's update, and errors."""
import unittest

import numpy as np
import weft
from ranks import on_ranks


def model():
    return {"weight": np.zeros((3, 5), np.float32), "bias": np.zeros(3, np.float64)}


class ParameterServer(unittest.TestCase):
    def train(self, comm, steps, **settings):
        """The parameters of this rank after workers have pushed their rank `steps` times, and the counters."""
        parameters = model()
        gradients = {name: np.full_like(x, comm.rank) for name, x in parameters.items()}
        with weft.train.ParameterServer(comm, parameters, gradients=gradients, **settings) as server:
            if comm.rank < settings.get("servers", 1):
                server.serve()
            else:
                for _ in range(steps):
                    server.push()
                    server.pull()
                server.finish()
            owners = {name: server.owner(name) for name in parameters}
            return parameters, owners, server.stats()

    def test_servers_apply_every_push_once(self):
        def body(comm):
            parameters, owners, stats = self.train(comm, 4, servers=2, learning_rate=0.5, staleness=1)
            for name, x in parameters.items():
                if owners[name] == comm.rank:
                    np.testing.assert_array_equal(x, np.full(x.shape, -0.5 * 4 * (2 + 3), x.dtype))
            self.assertEqual(stats.applied, 8 if comm.rank < 2 else 4)
            self.assertLessEqual(stats.largest_lead, 1)

        on_ranks(4, body)

    def test_a_step_is_the_mean_of_the_accepted_gradients(self):
        def body(comm):
            parameters, _, stats = self.train(comm, 3, learning_rate=1, accepted=2)
            self.assertEqual((stats.steps, stats.dropped), (3, 0))
            for x in parameters.values():
                np.testing.assert_array_equal(x, np.full(x.shape, -4.5, x.dtype))

        on_ranks(3, body)

    def test_the_callers_update_changes_the_servers_parameters(self):
        def body(comm):
            parameters = model()
            gradients = {name: np.full_like(x, 3) for name, x in parameters.items()}

            def update(name, gradient):
                self.assertEqual(gradient.shape, parameters[name].shape)
                parameters[name] += 2 * gradient

            with weft.train.ParameterServer(comm, parameters, gradients=gradients, update=update) as server:
                if comm.rank == 0:
                    server.serve()
                else:
                    server.push()
                    server.pull()
                    server.finish()
            for x in parameters.values():
                np.testing.assert_array_equal(x, np.full(x.shape, 6, x.dtype))

        on_ranks(2, body)

    def test_errors_have_ids_and_causes(self):
        def body(comm):
            with self.assertRaises(weft.Error) as caught:
                weft.train.ParameterServer(comm, model(), learning_rate=1)
            self.assertEqual(caught.exception.id, "train.model" if comm.rank == 0 else "argument.null")

            def update(name, gradient):
                raise ZeroDivisionError(name)

            gradients = model()
            server = weft.train.ParameterServer(comm, model(), gradients=gradients, update=update)
            with self.assertRaises(weft.Error) as caught:
                if comm.rank == 0:
                    server.serve()
                else:
                    server.push()
                    server.pull()
            self.assertEqual(caught.exception.id, "train.server-update" if comm.rank == 0 else "train.server-ended")
            if comm.rank == 0:
                self.assertIsInstance(caught.exception.__cause__, ZeroDivisionError)
            server.close()
            with self.assertRaises(weft.Error) as caught:
                server.push()
            self.assertEqual(caught.exception.id, "python.closed")

        on_ranks(2, body)


if __name__ == "__main__":
    unittest.main()
