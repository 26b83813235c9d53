"""Tensors of a device: order of streams, lifetime of memory, messages, failures. The device is fakegpu, or cuda on a GPU."""

import os
import threading
import time
import unittest
from datetime import timedelta
from unittest import mock

import torch
import torch.distributed as dist

import ranks
from ranks import fails, here

N = 100_000
HOST = torch.device("cpu")


def backend(group=None):
    return (group or dist.group.WORLD)._get_backend(here())


def full(value, count=N):
    return torch.full((count,), float(value))


def is_full(tensor, value):
    assert torch.equal(tensor.cpu(), torch.full(tensor.shape, float(value), device="cpu")), (tensor.flatten()[:4], value)


class Gate:
    """Holds the current stream up until open()."""

    def __init__(self):
        if ranks.DEVICE == "fakegpu":
            import fake_device

            self.open = fake_device.Gate().open
        else:  # long enough for the calls that follow
            torch.cuda._sleep(200_000_000)
            self.open = lambda: None


class Graph:
    """Repeats the work that the current stream gets in the context."""

    def __enter__(self):
        if ranks.DEVICE == "fakegpu":
            import fake_device

            self.graph = fake_device.Graph()
            self.graph.begin()
        else:
            self.graph = torch.cuda.CUDAGraph()
            self.graph.capture_begin()
        return self

    def __exit__(self, *failure):
        if ranks.DEVICE == "fakegpu":
            self.graph.end()
        else:
            self.graph.capture_end()

    def launch(self):
        if ranks.DEVICE == "fakegpu":
            self.graph.launch()
        else:
            self.graph.replay()


def meet():
    """A barrier of the hosts."""
    dist.all_reduce(torch.zeros(1, device=HOST))


def order(rank, size):
    """A call follows the current stream's work, and the current stream's next work follows the wait."""
    total = sum(range(1, size + 1))
    for is_async in (False, True):
        source, x = full(rank + 1), full(-1)
        gate = Gate()
        x.copy_(source)
        work = dist.all_reduce(x, async_op=is_async)
        if is_async:
            if ranks.DEVICE == "fakegpu":
                assert not work.is_completed()
            work.wait()
        y = x.clone()
        time.sleep(0.1)  # a call that did not follow the stream would go on now
        gate.open()
        is_full(y, total)
        x = full(rank + 1)
        gathered = torch.empty(size * N)
        gate = Gate()
        works = [dist.all_reduce(x, async_op=True), dist.all_gather_into_tensor(gathered, x, async_op=True)]
        dist.all_reduce(x)  # on the current stream, behind those on the group's
        gate.open()
        for work in works:
            work.wait()
        is_full(gathered, total)
        is_full(x, total * size)


def other_streams(rank, size):
    """Calls follow the stream that is current, whichever it is."""
    stream = torch.Stream(device=here())
    x, source = full(0), full(rank + 1)
    ranks.synchronize()
    with stream:
        gate = Gate()
        x.copy_(source)
        dist.all_reduce(x)
        y = x.clone()
    gate.open()
    stream.synchronize()
    is_full(y, sum(range(1, size + 1)))


def memory(rank, size):
    """Memory that a call uses is not given away before the call has ended, if the caller drops its tensors."""
    for waits in (True, False):
        x = full(rank)
        output = torch.empty(size * N)
        garbage = full(-5)
        ranks.synchronize()
        gate = Gate() if rank == size - 1 else None
        work = dist.all_gather_into_tensor(output, x, async_op=True)
        if not waits:
            del work
        del x
        # The allocator gives freed memory of the current stream away at once.
        for _ in range(4):
            torch.empty(N).copy_(garbage)
        meet()
        if gate:
            gate.open()
        if waits:
            work.wait()
        ranks.synchronize()
        dist.barrier(device_ids=[here().index])
        for each in range(size):
            is_full(output[each * N : (each + 1) * N], each)


def futures(rank, size):
    x = full(rank + 1)
    gate = Gate()
    work = dist.all_reduce(x, async_op=True)
    copied = work.get_future().then(lambda done: done.value()[0].clone())
    assert copied.done()  # the host does not wait
    gate.open()
    is_full(copied.wait(), sum(range(1, size + 1)))
    assert work.result()[0].data_ptr() == x.data_ptr()
    tensors = [full(rank + 1, 7), full(rank + 2, 9)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    is_full(tensors[0], sum(range(1, size + 1)))
    is_full(tensors[1], sum(range(2, size + 2)))


def messages(rank, size):
    after, before = (rank + 1) % size, (rank - 1) % size
    if size > 1:
        for count in (1, N, 1_000_000):
            # All send first, and messages are not part of a batch.
            x, y = full(rank, count), full(-1, count)
            works = [dist.isend(x, after), dist.irecv(y, before)]
            for work in works:
                work.wait()
            is_full(y, before)
            assert works[1].source_rank() == before if hasattr(works[1], "source_rank") else True
            # Messages and collectives do not wait for each other.
            if rank == 0:
                sent = dist.isend(x, 1)
                dist.all_reduce(y)
                sent.wait()
            else:
                dist.all_reduce(y)
                if rank == 1:
                    dist.recv(x, 0)
                    is_full(x, 0)
            is_full(y, sum(range(size)))
        # In order, and of memory that is not contiguous.
        for value in range(3):
            if rank == 0:
                dist.send(full(value, 20).view(4, 5).t(), size - 1)
            elif rank == size - 1:
                x = torch.zeros(4, 5).t()
                dist.recv(x, 0)
                is_full(x, value)
        # A batch is one group of calls, with a collective beside. It may have messages to this rank itself.
        outputs = [full(-1) for _ in range(size)]
        peers = list(range(size))
        for _ in range(2):
            batch = [dist.P2POp(dist.isend, full(rank * 10 + each), each) for each in peers]
            batch += [dist.P2POp(dist.irecv, outputs[each], each) for each in peers]
            for work in dist.batch_isend_irecv(batch):
                work.wait()
            for each in peers:
                is_full(outputs[each], each * 10 + rank)
        fails(lambda: dist.recv(full(0)), ValueError, "any source", "memory.kind")
        fails(lambda: dist.isend(full(0), rank), ValueError, "in a batch", "argument.rank")
    # torch receives messages of different types and no elements.
    if size > 1 and rank < 2:
        for dtype in (torch.int16, torch.bool, torch.complex64, torch.float8_e5m2):
            x = torch.ones(9).to(dtype)
            if rank == 0:
                dist.send(x, 1)
                dist.send(torch.empty(0), 1)
            else:
                y = torch.zeros(9).to(dtype)
                dist.recv(y, 0)
                assert torch.equal(y.cpu().view(torch.uint8), x.cpu().view(torch.uint8))
                dist.recv(torch.empty(0), 0)


def barriers(rank, size):
    x = full(rank)
    dist.barrier(device_ids=[here().index])
    gate = Gate()
    work = dist.all_reduce(x, async_op=True)
    waits = dist.barrier(device_ids=[here().index], async_op=True)
    if ranks.DEVICE == "fakegpu":
        assert not waits.is_completed()
    gate.open()
    waits.wait()
    assert work.is_completed() and waits.is_completed()
    dist.barrier()
    is_full(x, sum(range(size)))


def both_kinds(rank, size):
    """A group serves the CPU and a device side by side, and several devices."""
    x, y = full(rank), torch.full((5,), float(rank), device=HOST)
    works = [dist.all_reduce(x, async_op=True), dist.all_reduce(y, async_op=True)]
    for work in works:
        work.wait()
    is_full(x, sum(range(size)))
    is_full(y, sum(range(size)))
    fails(
        lambda: dist.all_gather_into_tensor(torch.empty(size * 5), y), ValueError, "cpu", f"{ranks.DEVICE}", "memory.kind"
    )
    fails(lambda: dist.all_gather([torch.empty(5)] * size, y), ValueError, "memory.kind")
    module = torch.get_device_module(ranks.DEVICE)
    if module.device_count() >= 2 * size:
        other = torch.full((5,), float(rank), device=f"{ranks.DEVICE}:{rank + size}")
        dist.all_reduce(other)
        is_full(other, sum(range(size)))


def groups(rank, size):
    """Subgroups, splits and shrunk groups make communicators of their own."""
    chosen = [0, size - 1] if size > 1 else [0]
    group = dist.new_group(chosen)
    if rank in chosen:
        x = full(1)
        dist.all_reduce(x, group=group)
        is_full(x, len(chosen))
    if size > 1 and hasattr(backend(), "split"):
        store = dist.PrefixStore("part", dist.distributed_c10d._get_default_store())
        part = backend().split(store, list(range(1, size)), None)
        if rank > 0:
            x = full(rank)
            part.allreduce([x]).wait()
            is_full(x, sum(range(size)))
            part.shutdown()
    sequence = backend()._get_sequence_number_for_group()
    dist.all_reduce(full(1))
    assert backend()._get_sequence_number_for_group() == sequence + 1


def bound(rank, size):
    """A device that init_process_group knows has its communicator at once, and groups can be split."""
    store = dist.distributed_c10d._get_default_store()
    dist.destroy_process_group()
    dist.init_process_group(
        ranks.names("weft"), store=dist.PrefixStore("bound", store), rank=rank, world_size=size, device_id=here()
    )
    dist.barrier()
    if torch.__version__ < (2, 15):  # an older one splits groups of NCCL only
        dist.all_reduce(full(1))
        return
    parts = [[0], list(range(1, size))] if size > 1 else [[0]]
    part = dist.split_group(split_ranks=parts)
    x = full(rank + 1)
    dist.all_reduce(x, group=part)
    is_full(x, 1 if rank == 0 else sum(range(2, size + 1)))


def memory_of_weft(rank, size):
    tensor = backend().allocate_tensor(N, dtype=torch.float32, device=here())
    assert tensor.device == here() and tensor.numel() == N
    tensor.copy_(full(rank))
    dist.all_reduce(tensor)
    is_full(tensor, sum(range(size)))
    del tensor
    if not hasattr(backend(), "_enable_collectives_timing"):
        return
    backend()._enable_collectives_timing()
    x = full(1)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    ranks.synchronize()
    assert work.is_completed() and work._get_duration() >= 0
    if hasattr(backend(), "_wait_for_pending_works"):
        backend()._wait_for_pending_works()


def late(rank, size):
    """A rank that makes no call in time: the others' operations fail with its name, and so does the next call."""
    x = full(1)
    dist.all_reduce(x)
    ranks.synchronize()
    store = dist.distributed_c10d._get_default_store()
    if rank == size - 1:
        store.wait([f"late {each}" for each in range(size - 1)])
        meet()
        fails(lambda: (dist.all_reduce(x), ranks.synchronize(), dist.all_reduce(x)), dist.DistBackendError)
        return
    work = dist.all_reduce(x, async_op=True)
    while not work.is_completed():
        time.sleep(0.01)
    assert not work.is_success()
    fails(work.wait, dist.DistBackendError, f"rank {size - 1}")
    if hasattr(backend(), "get_error"):
        assert backend().get_error() != torch._C._distributed_c10d.ErrorType.SUCCESS
    fails(lambda: dist.all_reduce(x), dist.DistBackendError, f"rank {size - 1}")
    store.set(f"late {rank}", "1")
    store.wait([f"late {each}" for each in range(size - 1)])
    meet()  # the communicator of host memory lives


def mismatched(rank, size):
    """Ranks that pass tensors of different sizes learn of it."""

    def call():
        work = dist.all_reduce(full(1, 100 + rank), async_op=True)
        while not work.is_completed():
            time.sleep(0.01)
        work.wait()

    fails(call, dist.DistBackendError, "rank")


def aborted(rank, size):
    """abort() returns with calls in flight; these fail, and later ones are refused."""
    store = dist.distributed_c10d._get_default_store()
    x = full(1)
    dist.all_reduce(x)
    ranks.synchronize()
    if rank < size - 1:
        work = dist.all_reduce(x, async_op=True)
        message = dist.irecv(full(0), size - 1)  # never sent
        store.set(f"in flight {rank}", "1")
        store.wait([f"in flight {each}" for each in range(size - 1)] + ["first call done"])
        backend().abort()
        fails(work.wait, dist.DistBackendError, "abort")
        fails(message.wait, dist.DistBackendError)
        fails(lambda: dist.all_reduce(x), RuntimeError)
        store.set(f"aborted {rank}", "1")
    else:
        store.set("first call done", "1")
        store.wait([f"aborted {each}" for each in range(size - 1)])
        backend().abort()
    ranks.synchronize()


def first_call_aborted(rank, size):
    """abort() ends a first call that waits for other ranks to join."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        group = backend()
        failures = []

        def call():
            try:
                dist.all_reduce(full(1))
            except dist.DistBackendError as error:
                failures.append(str(error))

        ranks.use_device(rank)
        thread = threading.Thread(target=lambda: (ranks.use_device(rank), call()))
        thread.start()
        thread.join(0.2)
        group.abort()
        thread.join()
        assert len(failures) == 1 and "abort" in failures[0], failures
        store.set("aborted", "1")
    else:
        store.wait(["aborted"])
        backend().abort()


def captured(rank, size):
    """Captured calls run at each launch of the graph. The group ends although its last calls were captured."""
    x, y, gathered = full(0), full(0), torch.empty(size * N)
    after, before = (rank + 1) % size, (rank - 1) % size
    dist.all_reduce(x)
    if size > 1:
        for work in [dist.isend(x, after), dist.irecv(y, before)]:
            work.wait()
    ranks.synchronize()
    with torch.Stream(device=here()) as stream:
        with Graph() as graph:
            dist.all_reduce(x)
            work = dist.all_gather_into_tensor(gathered, x, async_op=True)
            work.wait()
            if size > 1:
                for work in [dist.isend(x, after), dist.irecv(y, before)]:
                    work.wait()
            fails(lambda: dist.barrier(device_ids=[here().index]), RuntimeError, "stream.capture")
        for value in range(3):
            x.copy_(full(rank + value))
            gathered.copy_(torch.zeros(size * N))
            graph.launch()
            stream.synchronize()
            total = sum(each + value for each in range(size))
            is_full(x, total)
            is_full(gathered, total)
            is_full(y, total if size > 1 else 0)
    if torch.__version__ >= (2, 15):  # an older one finds no backend here
        dist.group.WORLD._wait_for_pending_works()


def released(rank, size):
    """Nothing keeps a tensor when its operation has ended."""
    after, before = (rank + 1) % size, (rank - 1) % size
    for _ in range(2):
        x, y = full(rank), full(0)
        works = [dist.isend(x, after), dist.irecv(y, before), dist.all_reduce(full(1), async_op=True)]
        for work in works:
            work.wait()
        ranks.synchronize()
        pointers = [x.untyped_storage()._weak_ref(), y.untyped_storage()._weak_ref()]
        del x, y, work, works
        for each in pointers:
            assert torch.UntypedStorage._expired(each), "a tensor is kept"
            torch.UntypedStorage._free_weak_ref(each)


def batches(rank, size):
    """A batch has one work, whose future orders streams. Ranks without a part in it count no call."""
    if rank < 2:
        y = full(-1)
        before = backend()._get_sequence_number_for_group()
        kind = (dist.isend, full(9)) if rank == 0 else (dist.irecv, y)
        works = dist.batch_isend_irecv([dist.P2POp(kind[0], kind[1], 1 - rank)])
        works[0].get_future().wait()
        if rank == 1:
            is_full(y, 9)
        assert backend()._get_sequence_number_for_group() == before
    dist.all_reduce(full(1))
    x = full(1)
    dist.barrier(async_op=True).get_future().wait()
    is_full(x, 1)


def hooked(rank, size):
    """A hook of ended operations learns of each one, and may make calls itself."""
    if torch.__version__ < (2, 15):  # an older one finds no backend for the hook
        return
    seen = []
    group = dist.group.WORLD

    def ended(info):
        seen.append(info.op_type)
        if len(seen) == 1:
            dist.all_reduce(full(1))

    group._register_on_completion_hook(ended)
    for _ in range(3):
        dist.all_reduce(full(1))
        ranks.synchronize()
    group._wait_for_pending_works()
    assert len(seen) == 4, seen


def without_times(rank, size):
    """If the device cannot tell the time of an operation, the hook still learns of its end."""
    if torch.__version__ < (2, 15):  # an older one finds no backend for the hook
        return
    seen = []
    group = dist.group.WORLD
    backend()._enable_collectives_timing()
    group._register_on_completion_hook(lambda info: seen.append(info.op_type))
    dist.all_reduce(full(1))
    ranks.synchronize()
    group._wait_for_pending_works()
    assert len(seen) == 1, seen


def died(rank, size):
    """The death of a rank ends calls in flight. The end of the group says so if no call has."""
    x = full(1)
    dist.all_reduce(x)
    ranks.synchronize()
    if rank == size - 1:
        os._exit(0)
    dist.all_reduce(x)
    ranks.synchronize()
    fails(dist.destroy_process_group, dist.DistBackendError, f"rank {size - 1}")


def waits(rank, size):
    """wait() with a time limit blocks the host."""
    x = full(rank)
    dist.all_reduce(x)
    gate = Gate()
    work = dist.all_reduce(x, async_op=True)
    if ranks.DEVICE == "fakegpu":
        fails(lambda: work.wait(timedelta(milliseconds=20)), dist.DistBackendError, "20 ms", "timeout.stream")
    gate.open()
    work.wait(timedelta(seconds=60))
    assert work.is_completed()


def waits_of_first_message(rank, size):
    """wait() with a time limit gives up although the peer has not come yet. The message arrives later."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        y = full(-1)
        work = dist.irecv(y, 1)
        fails(lambda: work.wait(timedelta(milliseconds=100)), dist.DistBackendError, "100 ms", "timeout.stream")
        store.set("gave up", "1")
        work.wait(timedelta(seconds=60))
        is_full(y, 3)
    elif rank == 1:
        store.wait(["gave up"], timedelta(seconds=60))
        dist.send(full(3), 0)


def threads(rank, size):
    """Calls of several threads, each with a group and a stream of its own."""
    made = [dist.new_group(list(range(size))) for _ in range(3)]
    results = [None] * len(made)

    def serve(at):
        ranks.use_device(rank)
        # On one stream the ranks' calls would need one order.
        with torch.Stream(device=here()):
            x = full(rank + at, 1000)
            for _ in range(5):
                dist.all_reduce(x, group=made[at])
            results[at] = x.cpu()

    running = [threading.Thread(target=serve, args=(at,)) for at in range(len(made))]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    for at, result in enumerate(results):
        is_full(result, sum(each + at for each in range(size)) * size**4)


SIZES = [2] if ranks.SMALL else [1, 2, 3, 4]


class Devices(unittest.TestCase):
    """Each function runs with every number of ranks."""

    @unittest.skipUnless(ranks.DEVICE == "fakegpu", "a GPU does not fail on request")
    def test_without_times(self):
        # 700: CUDA_ERROR_ILLEGAL_ADDRESS, after a wrong access of a kernel.
        with mock.patch.dict(os.environ, {"FAKE_CUDA": "gpus 8; fault cuEventElapsedTime 0 700"}):
            ranks.run(2, without_times)


def _add(function, least=1, timeout=60, dies=False):
    def test(self):
        for size in SIZES:
            if size >= least:
                with self.subTest(ranks=size):
                    ranks.run(size, function, timeout=timeout, dies=[size - 1] if dies else [])

    setattr(Devices, f"test_{function.__name__}", test)


for _each in (order, other_streams, memory, futures, messages, barriers, both_kinds, groups, bound, memory_of_weft, waits, captured):
    _add(_each)
for _each in (released, batches, hooked, waits_of_first_message):
    _add(_each, least=2)
_add(died, least=2, dies=True)
_add(threads)
_add(late, least=2, timeout=3)
_add(mismatched, least=2)
_add(aborted, least=2)
_add(first_call_aborted, least=2)

if __name__ == "__main__":
    unittest.main()
