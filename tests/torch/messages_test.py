"""Messages between two ranks: tags, any source, batches, and sends and receives in opposite orders."""

import os
import signal
import threading
import time
import unittest
import unittest.mock

import torch
import torch.distributed as dist

import ranks

LARGE = 300_000  # elements: more than any eager message
VERY_LARGE = 1 << 29  # bytes: a fifth of a second by TCP


def both_directions(rank, size):
    """Each rank sends before it receives, then receives before it sends."""
    following, preceding = (rank + 1) % size, (rank - 1) % size
    for count in (0, 1, 13, 1000, LARGE):
        sent = torch.arange(count, dtype=torch.float64) + rank
        for first in ("send", "recv"):
            received = torch.zeros(count, dtype=torch.float64)
            if first == "send":
                works = [dist.isend(sent, following), dist.irecv(received, preceding)]
            else:
                works = [dist.irecv(received, preceding), dist.isend(sent, following)]
            for work in works:
                work.wait()
            assert torch.equal(received, torch.arange(count, dtype=torch.float64) + preceding)


def tags(rank, size):
    """Messages are received in the opposite order of their sends."""
    for count in (3, LARGE):
        if rank == 0:
            works = [dist.isend(torch.full((count,), float(tag)), 1, tag=tag) for tag in range(5)]
            for work in works:
                work.wait()
        elif rank == 1:
            for tag in reversed(range(5)):
                x = torch.zeros(count)
                dist.recv(x, 0, tag=tag)
                assert x.unique().tolist() == [float(tag)]
        # All are posted before the messages come; the waits are in the opposite order.
        dist.barrier()
        if rank == 1:
            buffers = [torch.zeros(count) for _ in range(5)]
            works = [dist.irecv(buffers[tag], 0, tag=tag) for tag in range(5)]
            dist.barrier()
            for work in reversed(works):
                work.wait()
            assert [x.unique().tolist() for x in buffers] == [[float(tag)] for tag in range(5)]
        else:
            dist.barrier()
            if rank == 0:
                for tag in (3, 1, 4, 0, 2):
                    dist.send(torch.full((count,), float(tag)), 1, tag=tag)


def order(rank, size):
    """Messages of one tag are received in the order of their sends."""
    if rank == 0:
        works = [dist.isend(torch.full((4,), float(number)), 1) for number in range(200)]
        for work in works:
            work.wait()
    elif rank == 1:
        buffers = [torch.zeros(4) for _ in range(200)]
        works = [dist.irecv(buffer, 0) for buffer in buffers]
        for work in works:
            work.wait()
        assert [buffer[0].item() for buffer in buffers] == [float(number) for number in range(200)]


def posted_ahead(rank, size, source):
    """Receives that wait longer than the time limit succeed while messages come within it."""
    count = 6
    if rank == 0:
        for number in range(count):
            time.sleep(1)
            dist.send(torch.full((1,), float(number)), 1)
    elif rank == 1:
        buffers = [torch.zeros(1) for _ in range(count)]
        works = [dist.irecv(buffer, source) for buffer in buffers]
        time.sleep(0.5)  # the group's thread receives, and this one only waits
        works[-1].wait()
        assert [buffer.item() for buffer in buffers] == [float(number) for number in range(count)]


def slow_payload(rank, size, source):
    """A receive succeeds while its bytes come, also if the whole message takes longer than the time limit."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        x = torch.full((VERY_LARGE,), 3, dtype=torch.uint8)
        store.set("sender", str(os.getpid()))
        dist.send(torch.ones(1), 1)
        dist.send(x, 1)
    elif rank == 1:
        sender = int(store.get("sender"))
        x = torch.zeros(VERY_LARGE, dtype=torch.uint8)
        dist.recv(torch.zeros(1), source)
        work = dist.irecv(x, source)

        def slow_down():
            until = time.monotonic() + 5
            while time.monotonic() < until and not work.is_completed():
                os.kill(sender, signal.SIGSTOP)
                time.sleep(0.4)
                os.kill(sender, signal.SIGCONT)
                time.sleep(0.02)

        thread = threading.Thread(target=slow_down)
        thread.start()
        time.sleep(0.2)  # the group's thread receives, and this one only waits
        try:
            work.wait()
        finally:
            thread.join()
        assert x[0] == x[-1] == 3


def end_during_callback(rank, size):
    """A rank leaves while a callback of its last send runs. Its messages still arrive."""
    if rank == 0:
        dist.send(torch.zeros(1), 1)
        runs = threading.Event()

        def callback(_):
            runs.set()
            time.sleep(0.5)

        work = dist.isend(torch.ones(1), 1)
        work.get_future().then(callback)
        assert runs.wait(60)  # work.wait() could run the callback in this thread
        dist.destroy_process_group()
    elif rank == 1:
        x = torch.ones(1)
        dist.recv(x, 0)
        assert x.item() == 0
        time.sleep(0.3)  # the other rank leaves
        dist.recv(x, 0)
        assert x.item() == 1


def end_before_receives(rank, size):
    """A rank leaves when its short messages are sent. They fill all slots, and the receives begin later."""
    if rank == 0:
        dist.send(torch.full((1,), -1.0), 1)  # makes the connection
        for number in range(8):
            dist.send(torch.full((1,), float(number)), 1)
        dist.destroy_process_group()
    elif rank == 1:
        x = torch.zeros(1)
        dist.recv(x, 0)
        time.sleep(1)
        for number in range(8):
            dist.recv(x, 0)
            assert x.item() == number
        ranks.fails(lambda: dist.recv(x, 0), dist.DistBackendError, "has left the process group", "[rank.left]")


def any_source_after_an_end(rank, size):
    """A receive of any source takes the message of the rank that stays, after another one has left."""
    if rank == 1:
        dist.send(torch.ones(1), 0)
        dist.destroy_process_group()
    elif rank == 0:
        x = torch.zeros(1)
        dist.recv(x, 1)
        if size == 2:
            ranks.fails(lambda: dist.recv(x), dist.DistBackendError, "[rank.left]")
            return
        assert dist.recv(x) == 2 and x.item() == 7
        dist.recv(x, 3, tag=1)
    else:
        time.sleep(0.5)
        dist.send(torch.full((1,), 7.0), 0) if rank == 2 else dist.send(torch.zeros(1), 0, tag=1)


def any_source(rank, size):
    for count in (2, LARGE):
        if rank == 0:
            seen = []
            for _ in range(3 * (size - 1)):
                x = torch.zeros(count)
                source = dist.recv(x)
                assert x.unique().tolist() == [float(source)]
                seen.append(source)
            assert sorted(seen) == sorted(list(range(1, size)) * 3)
            # A receive from one source after receives from any.
            x = torch.zeros(1)
            dist.recv(x, 1, tag=1)
            assert x.item() == 7
        else:
            for _ in range(3):
                dist.send(torch.full((count,), float(rank)), 0)
            if rank == 1:
                dist.send(torch.full((1,), 7.0), 0, tag=1)
        dist.barrier()


def batches(rank, size):
    others = [each for each in range(size) if each != rank]
    sent = {each: torch.full((50,), float(rank * 10 + each)) for each in others}
    received = {each: torch.zeros(50) for each in others}
    operations = [dist.P2POp(dist.irecv, received[each], each) for each in others]
    operations += [dist.P2POp(dist.isend, sent[each], each) for each in others]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for each in others:
        assert received[each].unique().tolist() == [float(each * 10 + rank)]
    # One side has a batch, the other side single calls.
    if rank == 0:
        x = torch.zeros(3)
        batch = [dist.P2POp(dist.isend, torch.ones(3), 1), dist.P2POp(dist.irecv, x, 1)]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
        assert x.tolist() == [2.0] * 3
    elif rank == 1:
        x = torch.zeros(3)
        dist.send(torch.full((3,), 2.0), 0)
        dist.recv(x, 0)
        assert x.tolist() == [1.0] * 3


def strided(rank, size):
    if rank == 0:
        dist.send(torch.arange(20).view(4, 5).t(), 1)
    elif rank == 1:
        x = torch.zeros(4, 5, dtype=torch.int64).t()
        dist.recv(x, 0)
        assert torch.equal(x, torch.arange(20).view(4, 5).t())


def another_size(rank, size):
    """A receive of another size fails with both sizes; the next message arrives."""
    if rank == 0:
        for count in (3, LARGE):
            dist.send(torch.ones(count), 1)
            dist.send(torch.full((2,), 5.0), 1)
    elif rank == 1:
        for count in (3, LARGE):
            try:
                dist.recv(torch.zeros(2), 0)
                raise AssertionError("the receive of another size passed")
            except dist.DistBackendError as error:
                assert "8 bytes" in str(error) and f"{count * 4} bytes" in str(error), error
                assert "[mismatch.message]" in str(error)
            x = torch.zeros(2)
            dist.recv(x, 0)
            assert x.tolist() == [5.0, 5.0]


def with_collectives(rank, size):
    """Messages do not disturb collectives that lie between a send and its receive."""
    x = torch.zeros(LARGE)
    if rank == 0:
        work = dist.isend(torch.ones(LARGE), 1)
    y = torch.ones(5)
    dist.all_reduce(y)
    assert y.tolist() == [float(size)] * 5
    if rank == 0:
        work.wait()
    elif rank == 1:
        dist.recv(x, 0)
        assert x.unique().tolist() == [1.0]


def wrong(rank, size):
    group = dist.group.WORLD
    for call in (
        lambda: group.send([torch.ones(1)], size + 3, 0),
        lambda: group.send([torch.ones(1)], rank, 0),
        lambda: group.recv([torch.ones(1)], -1, 0),
    ):
        try:
            call()
        except ValueError as error:
            assert "[argument.rank]" in str(error)
        else:
            raise AssertionError("a wrong call passed")


class Messages(unittest.TestCase):
    """Each function runs with every number of ranks."""

    def test_posted_ahead(self):
        for source in (0, None):
            with self.subTest(source=source):
                ranks.run(2, posted_ahead, source, timeout=2)

    def test_slow_payload(self):
        # The bytes of a rank that is stopped do not come. By shared memory the receiver would read them itself.
        with unittest.mock.patch.dict(os.environ, WEFT_TRANSPORTS="tcp"):
            for source in (0, None):
                with self.subTest(source=source):
                    ranks.run(2, slow_payload, source, timeout=2)


def _add(function):
    def test(self):
        for size in (2, 4):
            with self.subTest(ranks=size):
                ranks.run(size, function)

    setattr(Messages, f"test_{function.__name__}", test)


for _each in (
    both_directions,
    tags,
    order,
    end_during_callback,
    end_before_receives,
    any_source_after_an_end,
    any_source,
    batches,
    strided,
    another_size,
    with_collectives,
    wrong,
):
    _add(_each)

if __name__ == "__main__":
    unittest.main()
