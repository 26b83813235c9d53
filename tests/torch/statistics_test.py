"""What the backend says of itself: predicted times and memory."""

import threading
import unittest

import torch
import torch.distributed as dist

import ranks


def estimates(rank, size):
    x, parts = torch.ones(size * 1000), [torch.ones(size * 1000) for _ in range(size)]
    times = []
    for call in (
        lambda: dist.all_reduce(x),
        lambda: dist.all_reduce(x, async_op=True).wait(),
        lambda: dist.broadcast(x, 0),
        lambda: dist.reduce(x, 0),
        lambda: dist.all_gather(parts, x),
        lambda: dist.all_gather_into_tensor(torch.cat(parts), x),
        lambda: dist.reduce_scatter_tensor(torch.ones(1000), x),
        lambda: dist.all_to_all_single(torch.ones(size * 1000), x),
        lambda: dist.gather(x, parts if rank == 0 else None),
        lambda: dist.scatter(x, parts if rank == 0 else None),
        lambda: dist.barrier(),
    ):
        with dist._time_estimator() as estimate:
            call()
        times.append(estimate.estimated_time)
        assert 0 < times[-1] < 1e6, times
    # Nothing was executed.
    assert x.tolist() == [1.0] * (size * 1000)
    assert times[0] == times[1]
    with dist._time_estimator() as estimate:
        dist.all_reduce(x)
        dist.all_reduce(x)
    assert abs(estimate.estimated_time - 2 * times[0]) < 1e-3 * times[0]
    if rank == 0:  # without the other ranks
        with dist._time_estimator() as estimate:
            dist.all_reduce(torch.ones(10_000_000))
        assert estimate.estimated_time > times[0]
    dist.all_reduce(x)
    assert x[0] == size
    # Messages have no estimate, and none is sent.
    for message in (dist.isend, dist.irecv):
        with dist._time_estimator():
            ranks.fails(lambda: message(x, 1 - rank), ValueError, "[argument.value]")


def estimates_beside_calls(rank, size):
    """While a thread estimates, the collectives of other threads are executed, and none may estimate."""
    x, y = torch.ones(3), torch.ones(3)
    failures = []

    def call():
        try:
            dist.all_reduce(x)
            ranks.fails(dist.group.WORLD._get_backend(torch.device("cpu"))._start_time_estimate, RuntimeError, "[usage.threads]")
        except BaseException as error:  # the main thread shows it
            failures.append(error)

    with dist._time_estimator() as estimate:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        dist.all_reduce(y)
    assert not failures, failures
    assert x.tolist() == [float(size)] * 3 and y.tolist() == [1.0] * 3
    assert estimate.estimated_time > 0


def memory(rank, size):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    dist.all_reduce(torch.ones(1000))
    bytes_of = backend.memory_stats
    if callable(bytes_of):
        bytes_of = bytes_of()
    assert set(bytes_of) == {"flag_block_bytes", "connection_bytes", "heap_bytes", "device_bytes", "total_bytes"}
    assert bytes_of["total_bytes"] == sum(bytes_of.values()) - bytes_of["total_bytes"] > 0
    assert bytes_of["device_bytes"] == 0


class Statistics(unittest.TestCase):
    @unittest.skipUnless(hasattr(torch._C._distributed_c10d.Backend, "_start_time_estimate"), "this torch does not ask for it")
    def test_estimates(self):
        ranks.run(2, estimates)
        ranks.run(2, estimates_beside_calls)

    @unittest.skipUnless(hasattr(torch._C._distributed_c10d.Backend, "memory_stats"), "this torch does not ask for it")
    def test_memory(self):
        ranks.run(2, memory)


if __name__ == "__main__":
    unittest.main()
