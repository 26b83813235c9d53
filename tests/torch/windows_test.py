"""One-sided calls: puts into the windows of other ranks, and signals."""

import time
import unittest

import torch
import torch.distributed as dist

import ranks


def group():
    return dist.group.WORLD


def ring(rank, size):
    """Each rank puts into the next one's window and signals; the result is there after the wait."""
    assert group().supports_window
    for dtype in (torch.float32, torch.int16, torch.complex64):
        mine = torch.zeros(8, dtype=dtype)
        window = group().new_window(mine)
        following, preceding = (rank + 1) % size, (rank - 1) % size
        for is_async in (False, True):
            sent = torch.full((3,), rank + 1, dtype=dtype)
            for work in (
                window.put(sent, following, 4, is_async),
                window.signal(following, is_async),
                window.wait_signal(preceding, is_async),
            ):
                work.wait()
                ranks.synchronize()
                assert work.is_completed()
            assert mine.tolist() == [0] * 4 + [preceding + 1] * 3 + [0]
            dist.barrier()
            mine.zero_()
            dist.barrier()
        assert window.map_remote_tensor(rank).data_ptr() == mine.data_ptr()
        assert window.get_attr(following).access_type == torch._C._distributed_c10d.WindowAccessType.UNIFIED
        window.tensor_deregister()


def later_tensor(rank, size):
    """A window without a tensor gets one, and another one after that. Sizes may differ between ranks."""
    window = group().new_window()
    for elements in (4, 2):
        mine = torch.zeros(elements + rank)
        window.tensor_register(mine, owning=False)
        other = size - 1 - rank
        window.put(torch.ones(elements + other), other, 0, False)
        window.signal(other, False)
        window.wait_signal(other, False)
        assert mine.tolist() == [1.0] * (elements + rank)
        dist.barrier()
        window.tensor_deregister()


def two_windows(rank, size):
    """The signal of one window does not end the wait of another."""
    windows = [group().new_window(torch.zeros(1)) for _ in range(3)]
    if rank == 0:
        for window in reversed(windows):
            window.signal(1, False)
    if rank == 1:
        for window in windows:
            window.wait_signal(0, False)
    dist.barrier()
    # They are not deregistered: the process group ends them.


def refusals(rank, size):
    window = group().new_window()
    ranks.fails(lambda: window.signal(0, False), RuntimeError, "[argument.handle]")
    window.tensor_register(torch.zeros(4))
    ranks.fails(lambda: window.tensor_register(torch.zeros(4)), RuntimeError, "[argument.handle]")
    ranks.fails(lambda: window.put(torch.zeros(1), size, 0, False), ValueError, "[argument.rank]")
    ranks.fails(lambda: window.put(torch.zeros(1), 0, -1, False), ValueError, "[argument.value]")
    ranks.fails(lambda: window.put(torch.zeros(1, dtype=torch.int8), 0, 0, False), ValueError, "[argument.datatype]")
    ranks.fails(lambda: window.put(torch.zeros(2), 0, 3, False), ValueError, "[")
    ranks.fails(lambda: window.map_remote_tensor(size - 1 - rank), RuntimeError, "does not map")
    dist.barrier()
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == size


def late_signal(rank, size):
    """A wait without a signal is an error that names the sender."""
    window = group().new_window(torch.zeros(1))
    if rank == 0:
        try:
            work = window.wait_signal(1, False)
            while not work.is_completed():  # on a device the host does not wait
                time.sleep(0.01)
            work.wait()
        except dist.DistBackendError as error:
            assert "rank 1" in str(error), error
        else:
            raise AssertionError("the wait passed")


@unittest.skipUnless(hasattr(dist.ProcessGroup, "new_window"), "this torch has no windows")
class Windows(unittest.TestCase):
    def test_ring(self):
        for size in (1, 2, 3):
            ranks.run(size, ring)

    def test_later_tensor(self):
        ranks.run(2, later_tensor)

    def test_two_windows(self):
        ranks.run(2, two_windows)

    def test_refusals(self):
        ranks.run(2, refusals)

    def test_late_signal(self):
        ranks.run(2, late_signal, timeout=1)


if __name__ == "__main__":
    unittest.main()
