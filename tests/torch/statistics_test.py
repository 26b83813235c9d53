"""What the backend says of itself: predicted times and memory."""

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

    @unittest.skipUnless(hasattr(torch._C._distributed_c10d.Backend, "memory_stats"), "this torch does not ask for it")
    def test_memory(self):
        ranks.run(2, memory)


if __name__ == "__main__":
    unittest.main()
