"""What a user sees when something goes wrong: a sentence with an id on every rank, within the time limit."""

import importlib
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist

import ranks
from ranks import fails

# Before 3.13 the module has another name.
for _name in ("_interpreters", "_xxsubinterpreters"):
    try:
        interpreters = importlib.import_module(_name)
        break
    except ImportError:
        interpreters = None


def store():
    return dist.distributed_c10d._get_default_store()


def backend():
    return dist.group.WORLD._get_backend(torch.device("cpu"))


def death(rank, size):
    dist.barrier()
    if rank == size - 1:
        os._exit(0)
    for is_async in (False, True):
        x = torch.ones(1000)

        def reduce():
            work = dist.all_reduce(x, async_op=is_async)
            if is_async:
                work.wait()

        fails(reduce, dist.DistBackendError, f"rank {size - 1}")


def death_of_sender(rank, size):
    if rank == 0:
        dist.send(torch.ones(1), 1)
        os._exit(0)
    if rank == 1:
        x = torch.zeros(1)
        dist.recv(x, 0)
        fails(lambda: dist.recv(x, 0), dist.DistBackendError, "rank 0")


def lost_store(rank, size):
    """If the process of torch's store has ended, calls that need the store say so."""
    keys = store()
    if rank == 0:
        server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        keys.set("port", str(server.port))
    port = int(keys.get("port"))
    dist.destroy_process_group()
    # A new connection is tried for this time.
    mine = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=2))
    dist.init_process_group("weft", store=mine, rank=rank, world_size=size)
    dist.barrier()
    keys.set(f"joined {rank}", "1")
    keys.wait([f"joined {each}" for each in range(size)], timedelta(seconds=60))
    if rank == 0:
        del server
        keys.set("lost", "1")
    keys.wait(["lost"], timedelta(seconds=60))
    fails(lambda: dist.send(torch.ones(1), 1 - rank), dist.DistBackendError, "the store", "[tcp.broken]")
    if hasattr(dist.ProcessGroup, "monitored_barrier") and hasattr(backend(), "split"):  # from torch 2.15 on
        fails(dist.monitored_barrier, dist.DistBackendError, "the store", "[tcp.broken]")
        split = dist.PrefixStore("part", mine)
        fails(lambda: backend().split(split, list(range(size)), None), dist.DistBackendError, "the store", "[tcp.broken]")


def second_join(rank, size):
    """A group whose creation failed can be made again by the same keys of the store."""
    part = dist.PrefixStore("part", store())
    if rank == 0:
        fails(lambda: backend().split(part, [0, 1], None), dist.DistBackendError, "[init.rank-missing]")
        # If it were deleted, a rank that has just found it would wait for the store's own time limit.
        assert part.check(["weft/comm"])
        store().set("failed", "1")
        time.sleep(0.5)  # rank 1 looks for the unique id first
    else:
        store().wait(["failed"], timedelta(seconds=60))
    group = backend().split(part, [0, 1], None)
    x = torch.ones(3)
    group.allreduce([x]).wait()
    assert x.tolist() == [2.0] * 3
    group.shutdown()


def one_store(rank, size):
    """Two groups on the same keys of a store do not mix their messages."""
    part = dist.PrefixStore("part", store())
    groups = [backend().split(part, [0, 1], None) for _ in range(2)]
    if rank == 0:
        works = [group.send([torch.full((3,), float(number))], 1, 0) for number, group in enumerate(groups)]
        for work in works:
            work.wait()
    else:
        for number in (1, 0):
            x = torch.zeros(3)
            groups[number].recv([x], 0, 0).wait()
            assert x.tolist() == [float(number)] * 3
    for group in groups:
        group.shutdown()


def late(rank, size):
    """All ranks learn of the one that does not come; it learns that the others gave up."""
    x = torch.ones(10)
    if rank == 0:
        begun = time.monotonic()
        fails(lambda: dist.all_reduce(x), dist.DistBackendError, "rank 1", "[timeout.collective]")
        assert time.monotonic() - begun < 30
        store().set("gave up", "1")
    else:
        store().wait(["gave up"], timedelta(seconds=60))
        fails(lambda: dist.all_reduce(x), dist.DistBackendError)


def timeout_of_call(rank, size):
    options = dist.AllreduceOptions()
    options.timeout = timedelta(milliseconds=500)
    options.asyncOp = False
    if rank == 0:
        fails(lambda: dist.group.WORLD.allreduce([torch.ones(3)], options).wait(), dist.DistBackendError, "500 ms")
    else:
        store().wait(["failed"], timedelta(seconds=60))
    if rank == 0:
        store().set("failed", "1")


def results_of_works(rank, size):
    """Futures of results are 0: success, 1: timeout, 2: failure. A batch has the first failure of its messages."""
    x, y = torch.ones(3), torch.zeros(3)
    work = dist.all_reduce(x, async_op=True)
    assert work.get_future_result().wait() == 0
    assert work.get_future_result().wait() == 0
    # A callback of the other future may wait for it.
    if rank == 1:
        store().wait(["has a callback"], timedelta(seconds=60))
    work = dist.all_reduce(x, async_op=True)
    result = work.get_future_result()
    then = work.get_future().then(lambda _: result.wait())
    if rank == 0:
        store().set("has a callback", "1")
    assert then.wait() == 0
    x = torch.ones(3) * 2
    batch = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 1 - rank), dist.P2POp(dist.irecv, y, 1 - rank)])
    assert len(batch) == 1 and batch[0].get_future_result().wait() == 0
    assert y.tolist() == [2.0] * 3
    assert batch[0]._get_duration() > 0
    if hasattr(work, "_get_sequence_number"):
        assert batch[0]._get_sequence_number() == work._get_sequence_number()
    if rank == 0:
        batch = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 1), dist.P2POp(dist.irecv, y, 1)])
        assert batch[0].get_future_result().wait() == 1
        store().set("failed", "1")
    else:
        store().wait(["failed"], timedelta(seconds=60))
    mismatched = dist.all_reduce(torch.ones(5 + rank), async_op=True)
    assert mismatched.get_future_result().wait() == 2


def added_time(rank, size):
    """_add_ephemeral_timeout serves calls until the first one has ended, whatever its kind."""
    x = torch.ones(3)

    def late_calls(call):
        if rank == 1:
            time.sleep(2)
        call()

    def of_works():
        works = [dist.all_reduce(x, async_op=True), dist.all_reduce(x, async_op=True)]
        for work in works:
            work.wait()

    for call in (
        lambda: dist.all_reduce(x),
        of_works,
        dist.monitored_barrier,
        lambda: dist.send(x, 1) if rank == 0 else dist.recv(x, 0),
        lambda: dist.recv(x, 1) if rank == 0 else dist.send(x, 0),
    ):
        dist.distributed_c10d._add_ephemeral_timeout_for_all_pgs(timedelta(seconds=20))
        dist.distributed_c10d._add_ephemeral_timeout_for_all_pgs(timedelta(seconds=20))
        late_calls(call)
    # A local call behind a pending one is none of those.
    if rank == 1:
        store().wait(["pending"], timedelta(seconds=60))
    work = dist.all_reduce(x, async_op=True)
    dist.distributed_c10d._add_ephemeral_timeout_for_all_pgs(timedelta(seconds=20))
    if rank == 0:
        threading.Timer(0.2, store().set, ["pending", "1"]).start()
        if callable(stats := backend().memory_stats):
            stats()
    work.wait()
    late_calls(lambda: dist.all_reduce(x))
    if rank == 0:
        fails(lambda: dist.all_reduce(x), dist.DistBackendError, "1000 ms", "[timeout.collective]")
        store().set("failed", "1")
    else:
        store().wait(["failed"], timedelta(seconds=60))


def wait_with_timeout(rank, size):
    """A wait that gives up breaks nothing."""
    keys = store()
    x = torch.ones(3)
    if rank == 0:
        work = dist.all_reduce(x, async_op=True)
        fails(lambda: work.wait(timedelta(milliseconds=100)), dist.DistBackendError, "100 ms")
        keys.set("waited", "1")
        work.wait()
    else:
        keys.wait(["waited"], timedelta(seconds=60))
        dist.all_reduce(x)
    assert x.tolist() == [float(size)] * 3


def other_threads_run(rank, size):
    """synchronize() and memory_stats() wait without the GIL, so that other threads and abort hooks run meanwhile."""
    group, x = dist.group.WORLD, torch.ones(3)

    def memory_stats(work):
        found = backend().memory_stats
        if callable(found):
            found()
        work.wait()

    waits = [lambda work: work.synchronize()]
    if hasattr(torch._C._distributed_c10d.Backend, "memory_stats"):  # from torch 2.15 on
        waits.append(memory_stats)
    for number, wait in enumerate(waits):
        if rank == 0:
            work = dist.all_reduce(x, async_op=True)
            threading.Timer(0.2, store().set, [f"go {number}", "1"]).start()
            wait(work)
        else:
            store().wait([f"go {number}"], timedelta(seconds=60))
            dist.all_reduce(x)
    assert x.tolist() == [float(size ** len(waits))] * 3
    if hasattr(group, "register_abort_hook"):
        called = threading.Event()
        group.register_abort_hook(7, called.set)
        if rank == 0:
            work = dist.all_reduce(x, async_op=True)
            fails(work.synchronize, dist.DistBackendError, "[timeout.collective]")
            assert called.is_set()
            store().set("failed", "1")
        else:
            store().wait(["failed"], timedelta(seconds=60))


def after_a_subinterpreter(rank, size):
    """A wait for a pending operation works in a process that had a sub-interpreter."""
    interpreters.destroy(interpreters.create())
    x = torch.ones(3)
    if rank == 0:
        work = dist.all_reduce(x, async_op=True)
        threading.Timer(0.2, store().set, ["waits", "1"]).start()
        work.wait()
    else:
        store().wait(["waits"], timedelta(seconds=60))
        dist.all_reduce(x)
    assert x.tolist() == [float(size)] * 3


def receive_without_send(rank, size):
    if rank == 0:
        fails(lambda: dist.recv(torch.zeros(1), 1), dist.DistBackendError, "rank 1", "[timeout.message]")
    store().set(f"done {rank}", "1")
    store().wait([f"done {each}" for each in range(size)], timedelta(seconds=60))


def mismatch(rank, size):
    fails(lambda: dist.all_reduce(torch.ones(5 + rank)), dist.DistBackendError, "[mismatch.count]")


def mismatched_types(rank, size):
    dtype = torch.float32 if rank == 0 else torch.float64
    fails(lambda: dist.all_reduce(torch.ones(5, dtype=dtype)), dist.DistBackendError, "[mismatch.datatype]")


def mismatched_calls(rank, size):
    x = torch.ones(5)
    call = (lambda: dist.all_reduce(x)) if rank == 0 else (lambda: dist.broadcast(x, 0))
    fails(call, dist.DistBackendError, "[mismatch.call]")


def begin_together(rank):
    """An abort of rank 0 does not end the first calls of rank 1."""
    if rank == 0:
        store().wait(["began"], timedelta(seconds=60))
    else:
        store().set("began", "1")


def abort_in_flight(rank, size):
    """abort() returns while a collective waits, and the collective fails."""
    begin_together(rank)
    if rank == 0:
        work = dist.all_reduce(torch.ones(3), async_op=True)
        message = dist.irecv(torch.zeros(3), 1)
        backend().abort()
        fails(work.wait, Exception, "abort")
        fails(message.wait, Exception, "abort")
        fails(lambda: dist.all_reduce(torch.ones(3)), RuntimeError, "[usage.finalized]")
        store().set("aborted", "1")
    else:
        store().wait(["aborted"], timedelta(seconds=60))
        fails(lambda: dist.all_reduce(torch.ones(3)), dist.DistBackendError, "[abort.remote]")


def abort_by_another_thread(rank, size):
    """A blocked call in the main thread ends by the abort of another thread."""
    begin_together(rank)
    if rank == 0:
        threading.Timer(0.2, lambda: backend().abort()).start()
        fails(lambda: dist.all_reduce(torch.ones(3)), Exception, "abort")
        store().set("aborted", "1")
    else:
        store().wait(["aborted"], timedelta(seconds=60))
        fails(lambda: dist.all_reduce(torch.ones(3)), dist.DistBackendError, "[abort.remote]")


def end_after_abort(rank, size):
    """A group that was aborted has no works to wait for and takes an empty batch. Calls of a batch are refused."""
    group, device = dist.group.WORLD, torch.device("cpu")
    dist.barrier()
    if hasattr(backend(), "_wait_for_pending_works"):
        group._register_on_completion_hook(lambda info: None)
    store().set(f"aborts {rank}", "1")
    store().wait([f"aborts {each}" for each in range(size)], timedelta(seconds=60))
    backend().abort()
    with dist._coalescing_manager(group, device):
        pass

    def batch():
        with dist._coalescing_manager(group, device):
            dist.all_reduce(torch.ones(1))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fails(batch, RuntimeError, "[usage.finalized]")
    if hasattr(backend(), "_wait_for_pending_works"):
        group._wait_for_pending_works()
    child = os.fork()
    if child == 0:
        try:
            if hasattr(backend(), "_wait_for_pending_works"):
                group._wait_for_pending_works()
            with dist._coalescing_manager(group, device):
                pass
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    dist.destroy_process_group()


class Intended(Exception):
    pass


def left_batches(rank, size):
    """An exception in a with statement ends a batch, or an estimate, which torch does not do. Later calls run."""
    group, device = dist.group.WORLD, torch.device("cpu")

    def works():
        for collective in (dist.all_reduce, lambda x: dist.broadcast(x, 0), lambda x: dist.reduce(x, 0)):
            x = torch.ones(3)
            collective(x)
        x = torch.ones(3)
        with dist._coalescing_manager(group, device, async_ops=True) as manager:
            dist.broadcast(x, 0)
            dist.broadcast(x, 1)
        manager.wait()
        x = torch.ones(3)
        dist.all_reduce(x)
        assert x.tolist() == [float(size)] * 3

    def leaves(calls):
        try:
            with dist._coalescing_manager(group, device):
                for call in calls:
                    call(torch.full((3,), float(rank)))
                raise Intended
        except Intended:
            pass

    def broadcast(x):
        dist.broadcast(x, 0)

    for calls in ([], [broadcast], [broadcast] * 3, [dist.all_reduce] * 2):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            leaves(calls)
            said = [str(each.message) for each in warned if "coalesced batch" in str(each.message)]
            assert len(said) == bool(calls), said
            if calls:
                assert f"its {len(calls)} collectives do not run" in said[0], said
        works()
    # The exception comes from a call of the batch.
    wrong = [dist.P2POp(dist.isend, torch.ones(1), peer) for peer in ((rank + 1) % size, rank)]
    fails(lambda: dist.batch_isend_irecv(wrong), ValueError, "rank")
    dist.recv(torch.zeros(1), (rank - 1) % size)
    works()
    # A batch inside another one is refused, and nothing of the outer one is lost.
    x = torch.full((3,), float(rank))
    group._start_coalescing(device)
    group.broadcast([x])
    fails(lambda: group._start_coalescing(device), RuntimeError, "[group.not-preparable]")
    group._end_coalescing(device).wait()
    assert x.tolist() == [0.0] * 3
    with warnings.catch_warnings(record=True):
        fails(lambda: leaves([lambda x: dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 1 - rank)])]), RuntimeError)
    works()
    if hasattr(backend(), "_start_time_estimate"):  # from torch 2.15 on
        try:
            with dist._time_estimator(group, device):
                raise Intended
        except Intended:
            works()


def after_destroy(rank, size):
    ended = backend()
    dist.destroy_process_group()
    fails(lambda: ended.allreduce([torch.ones(3)]), RuntimeError, "[usage.finalized]")


def arguments(rank, size):
    ones = torch.ones(4)
    fails(lambda: dist.all_reduce(ones.to_sparse(), dist.ReduceOp.MAX), ValueError, "sparse", "[argument.reduction]")
    fails(lambda: dist.all_reduce(ones, dist.ReduceOp.BAND), ValueError, "BAND", "[argument.reduction]")
    fails(lambda: dist.all_reduce(ones.bool(), dist.ReduceOp.AVG), ValueError, "AVG", "[argument.reduction]")
    half = torch.distributed._make_nccl_premul_sum(0.5)
    fails(lambda: dist.all_reduce(ones.int(), half), ValueError, "PREMUL_SUM", "[argument.reduction]")
    fails(lambda: dist.all_reduce(ones.to(torch.float8_e4m3fnuz)), ValueError, "[argument.datatype]")
    fails(lambda: dist.all_gather_into_tensor(torch.ones(5), ones), ValueError, "5 elements", "[argument.count]")
    fails(lambda: dist.all_to_all_single(torch.ones(4), ones, [1] * size, [4] * size), ValueError, "[argument.counts]")
    fails(lambda: dist.reduce_scatter_tensor(torch.ones(3), ones), ValueError, "[argument.count]")
    fails(
        lambda: dist.group.WORLD.allgather([[torch.ones(4)] * (size + 1)], [ones]).wait(), ValueError, "[argument.count]"
    )
    # Nothing was broken.
    dist.all_reduce(ones)
    assert ones.tolist() == [float(size)] * 4


def fork(rank, size):
    """A child of fork() gets an error, and the parent goes on."""
    x = torch.ones(3)
    dist.all_reduce(x, async_op=True).wait()
    child = os.fork()
    if child == 0:
        try:
            fails(lambda: dist.all_reduce(x), RuntimeError, "[usage.forked]")
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    dist.all_reduce(x)
    assert x.tolist() == [float(size * size)] * 3


EXIT = """
import sys, torch, torch.distributed as dist, weft.torch
rank = int(sys.argv[1])
dist.init_process_group("weft", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
x = torch.ones(3)
dist.all_reduce(x, async_op=True).wait()
pending = dist.irecv(torch.zeros(3), 1 - rank)
future = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(lambda done: print("callback"))
future.wait()
print("the end")
"""


class Failures(unittest.TestCase):
    """Each function runs on two ranks and, where that changes anything, on three."""

    def test_exit_without_destroy(self):
        """Neither threads nor unfinished receives keep the interpreter."""
        with tempfile.TemporaryDirectory() as folder:
            programs = [
                subprocess.Popen(
                    [sys.executable, "-c", EXIT, str(rank), folder + "/store"],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                for rank in range(2)
            ]
            for program in programs:
                said, errors = program.communicate(timeout=ranks.LIMIT)
                self.assertEqual((program.returncode, said.split("\n")[:2]), (0, ["callback", "the end"]), errors)
                self.assertNotIn("Error", errors)

    def test_death(self):
        for size in (2, 3):
            ranks.run(size, death, dies=[size - 1])

    def test_death_of_sender(self):
        ranks.run(2, death_of_sender, dies=[0])

    @unittest.skipUnless(hasattr(torch._C._distributed_c10d.Backend, "split"), "this torch splits groups of NCCL only")
    def test_second_join(self):
        ranks.run(2, second_join, timeout=2)

    @unittest.skipUnless(hasattr(torch._C._distributed_c10d.Backend, "split"), "this torch splits groups of NCCL only")
    def test_one_store(self):
        ranks.run(2, one_store, timeout=10)

    def test_late(self):
        ranks.run(2, late, timeout=1)

    @unittest.skipIf(torch.__version__ < (2, 15), "this torch does not ask for it")
    def test_added_time(self):
        ranks.run(2, added_time, timeout=1)

    @unittest.skipUnless(hasattr(dist.Work, "get_future_result"), "this torch does not ask for it")
    def test_results_of_works(self):
        ranks.run(2, results_of_works, timeout=2)

    def test_other_threads_run(self):
        ranks.run(2, other_threads_run, timeout=2)

    @unittest.skipUnless(interpreters, "this Python has no module of sub-interpreters")
    def test_after_a_subinterpreter(self):
        ranks.run(2, after_a_subinterpreter)

    def test_receive_without_send(self):
        ranks.run(2, receive_without_send, timeout=1)

    def test_options(self):
        import weft.torch

        fails(lambda: ranks.run(1, arguments, options=lambda: dist.ProcessGroupGloo._Options()), AssertionError, "Options")
        ranks.run(2, arguments, options=lambda: weft.torch.Options(algo="ring", deterministic=False))
        fails(
            lambda: ranks.run(1, arguments, options=lambda: weft.torch.Options(algo="no such")),
            AssertionError,
            "no such",
            "[option.",
        )


def _add(function):
    setattr(Failures, f"test_{function.__name__}", lambda self: ranks.run(2, function))


for _each in (
    timeout_of_call,
    wait_with_timeout,
    mismatch,
    mismatched_types,
    mismatched_calls,
    abort_in_flight,
    abort_by_another_thread,
    end_after_abort,
    lost_store,
    left_batches,
    after_destroy,
    arguments,
    fork,
):
    _add(_each)

if __name__ == "__main__":
    unittest.main()
