"""torch's flight recorder, hooks and profiler see what the backend does."""

import importlib
import logging
import os
import pickle
import tempfile
import threading
import time
import unittest
from unittest import mock

import torch
import torch.distributed as dist

import ranks

PREFIX = "flight_"


def entries():
    return pickle.loads(torch._C._distributed_c10d._dump_fr_trace(True, True, False, "weft"))["entries"]


def backend():
    return dist.group.WORLD._get_backend(torch.device("cpu"))


def await_dump(rank):
    """The recorder writes its file in another thread if this rank made no call that failed."""
    file = os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(rank)
    until = time.monotonic() + ranks.LIMIT
    while time.monotonic() < until:
        try:
            with open(file, "rb") as dump:
                return pickle.load(dump)
        except (FileNotFoundError, EOFError, pickle.UnpicklingError):
            time.sleep(0.01)
    raise AssertionError(f"rank {rank} wrote no dump")


def states(rank, size):
    x = torch.ones(3)
    dist.all_reduce(x)
    dist.all_reduce(x, async_op=True).wait()
    dist.barrier()
    if rank == 0:
        dist.send(x, 1)
    else:
        dist.recv(x, 0)
    backend()._wait_for_pending_works()
    seen = entries()
    assert [each["profiling_name"].split()[0] for each in seen] == [
        "weft:all_reduce",
        "weft:all_reduce",
        "weft:barrier",
        "weft:recv" if rank else "weft:send",
    ]
    for each in seen:
        assert each["state"] == "completed" and each["retired"] and each["duration_ms"] > 0, each
    assert [each["collective_seq_id"] for each in seen] == [1, 2, 3, 3]


def buffer_size(rank, size, wanted):
    x = torch.ones(3)
    for _ in range(wanted + 3):
        dist.all_reduce(x)
    assert len(entries()) == wanted


def late(rank, size):
    """Rank 1 makes no call, and its dump says so."""
    x = torch.ones(3)
    for _ in range(3):
        dist.all_reduce(x)
    if rank == 0:
        try:
            dist.all_reduce(x)
        except dist.DistBackendError:
            pass
    assert len(await_dump(rank)["entries"]) == 4 - rank


def mismatched_counts(rank, size):
    try:
        dist.all_reduce(torch.ones(3 + rank))
    except dist.DistBackendError:
        pass
    await_dump(rank)


def mismatched_calls(rank, size):
    x = torch.ones(3)
    dist.all_reduce(x)
    try:
        if rank == 0:
            dist.all_reduce(x, async_op=True).wait()
        else:
            dist.broadcast(x, 0)
    except dist.DistBackendError:
        pass
    await_dump(rank)


def no_message(rank, size):
    """A receive that fails makes both ranks write."""
    x = torch.ones(3)
    if rank == 0:
        dist.send(x, 1)
    else:
        dist.recv(x, 0)
        try:
            dist.recv(x, 0)
        except dist.DistBackendError:
            pass
    await_dump(rank)


def no_dump(rank, size):
    try:
        dist.all_reduce(torch.ones(3 + rank))
    except dist.DistBackendError:
        pass


def abort_hooks(rank, size):
    """They run on ranks that fail and on those that make no call, and not for a wrong argument."""
    called = threading.Event()
    assert dist.group.WORLD.supports_abort_hooks
    dist.group.WORLD.register_abort_hook(7, called.set)
    dist.group.WORLD.register_abort_hook(8, lambda: called.set() or 1 / 0)
    dist.group.WORLD.register_abort_hook(9, os.abort)
    dist.group.WORLD.unregister_abort_hook(9)
    try:
        dist.all_gather_into_tensor(torch.ones(5), torch.ones(4))
    except ValueError:
        pass
    assert not called.is_set()
    dist.barrier()
    if rank == 0:
        try:
            dist.all_reduce(torch.ones(3))
        except dist.DistBackendError:
            pass
        assert called.is_set()
    assert called.wait(ranks.LIMIT)


def removed_hooks(rank, size):
    """The last hooks still run when the group ends meanwhile, which removes torch's own."""
    began, ended = threading.Event(), threading.Event()

    def hook():
        began.set()
        assert ended.wait(ranks.LIMIT)
        time.sleep(0.1)

    dist.group.WORLD.register_abort_hook(7, hook)
    dist.barrier()
    if rank == 0:
        dist.all_reduce(torch.ones(3), async_op=True)
    assert began.wait(ranks.LIMIT)
    dist.group.WORLD.unregister_abort_hook(7)
    ended.set()


def no_abort_hooks(rank, size):
    called = threading.Event()
    dist.group.WORLD.register_abort_hook(7, called.set)
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.set("began", "1")
    else:
        store.wait(["began"])  # an abort would end rank 1's first calls
        work = dist.all_reduce(torch.ones(3), async_op=True)
        backend().abort()
        try:
            work.wait()
        except Exception:
            pass
        assert not called.is_set()


def end_hook(rank, size):
    seen = []
    dist.group.WORLD._register_on_completion_hook(lambda info: seen.append((info.op_type.name, info.seq)))
    assert dist.group.WORLD._has_hooks()
    x = torch.ones(3)
    dist.all_reduce(x)
    work = dist.broadcast(x, 0, async_op=True)
    dist.group.WORLD._wait_for_pending_works()
    assert work.is_completed()
    assert seen == [
        ("ALLREDUCE", 1),
        ("BROADCAST", 2),
    ], seen


def profile(rank, size):
    x, parts = torch.ones(4 * size), [torch.zeros(4 * size) for _ in range(size)]

    def calls(is_async):
        works = [
            dist.all_reduce(x, async_op=is_async),
            dist.broadcast(x, 0, async_op=is_async),
            dist.reduce(x, 0, async_op=is_async),
            dist.all_gather(parts, x, async_op=is_async),
            dist.all_gather_into_tensor(torch.cat(parts), x, async_op=is_async),
            dist.reduce_scatter_tensor(torch.ones(4), x, async_op=is_async),
            dist.all_to_all_single(torch.ones(4 * size), x, async_op=is_async),
            dist.gather(x, parts if rank == 0 else None, async_op=is_async),
            dist.scatter(x, parts if rank == 0 else None, async_op=is_async),
            dist.barrier(async_op=is_async),
        ]
        peer = (rank + 1) % size
        works += [dist.isend(x, peer), dist.irecv(torch.ones(4 * size), peer)]
        for work in works:
            if work is not None:
                work.wait()

    calls(False)
    for is_async in (False, True):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            calls(is_async)
            backend()._wait_for_pending_works()
        events = {event.name: event for event in profiler.events()}
        for name in (
            "all_reduce broadcast reduce all_gather all_gather_single reduce_scatter_single all_to_all_single gather "
            "scatter barrier send recv"
        ).split():
            assert f"weft:{name}" in events, (is_async, name, sorted(events))
            assert events[f"weft:{name}"].time_range.elapsed_us() > 0, name


@unittest.skipUnless(hasattr(dist.ProcessGroup, "register_abort_hook"), "this torch has no hooks")
class Recorder(unittest.TestCase):
    """Each function runs on two ranks."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def run_with(self, function, *arguments, timeout=60, **variables):
        variables.setdefault("TORCH_FR_DUMP_TEMP_FILE", os.path.join(self.folder.name, PREFIX))
        with mock.patch.dict(os.environ, variables):
            ranks.run(2, function, *arguments, timeout=timeout)
        return sorted(os.listdir(self.folder.name))

    def analysis(self):
        """What torch's analyser of the dumps says."""
        from torch.distributed.flight_recorder import fr_trace  # torch 2.15 has it

        with self.assertLogs("Flight Recorder", logging.INFO) as lines:
            fr_trace.main([self.folder.name, "-p", PREFIX])
        return "\n".join(lines.output)

    def test_states(self):
        self.assertEqual(self.run_with(states), [])

    def test_buffer_size(self):
        self.run_with(buffer_size, 4, TORCH_FR_BUFFER_SIZE="4")
        self.run_with(buffer_size, 0, TORCH_FR_BUFFER_SIZE="0")

    def test_late(self):
        # The recorder would import it in each rank, with a limit of 15 seconds.
        importlib.import_module("torch._inductor")
        with_lines = {"TORCH_INCLUDE_STACK_TRACE": "1"}
        self.assertEqual(self.run_with(late, timeout=1, **with_lines), [PREFIX + "0", PREFIX + "1"])
        said = self.analysis()
        self.assertIn("Not all ranks joining collective, sequence number: 4", said)
        self.assertIn("missing ranks: {1}", said)
        self.assertIn("late at ", said)  # the function that called

    def test_mismatched_counts(self):
        self.assertEqual(self.run_with(mismatched_counts), [PREFIX + "0", PREFIX + "1"])
        said = self.analysis()
        # The rank whose file comes first in the folder is taken as right.
        self.assertRegex(said, "Culprit rank [01]; Error type: SIZE_OR_SYNTAX_MISMATCH")
        self.assertRegex(said, r"'\[\[[34]\]\]' does not match found input sizes: '\[\[[34]\]\]'")

    def test_mismatched_calls(self):
        self.assertEqual(self.run_with(mismatched_calls), [PREFIX + "0", PREFIX + "1"])
        said = self.analysis()
        self.assertRegex(said, "Culprit rank [01]; Error type: COLLECTIVE_TYPE_MISMATCH")
        self.assertRegex(said, r"'\w+' does not match found collective type: '(all_reduce|broadcast)'")

    def test_no_message(self):
        self.assertEqual(self.run_with(no_message, timeout=1), [PREFIX + "0", PREFIX + "1"])

    def test_dump_is_off(self):
        for name in ("TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT"):
            self.assertEqual(self.run_with(no_dump, **{name: "0"}), [])
        self.assertEqual(self.run_with(no_dump, TORCH_FR_BUFFER_SIZE="0"), [])

    def test_hooks(self):
        self.run_with(abort_hooks, timeout=1)
        self.run_with(removed_hooks, timeout=1)
        self.run_with(no_abort_hooks)
        self.run_with(end_hook)
        self.run_with(profile)


if __name__ == "__main__":
    unittest.main()
