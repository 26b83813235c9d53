"""Runs a function as the ranks of a process group of Weft, each in a process of its own."""

import faulthandler
import os
import queue
import signal
import tempfile
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing

import weft.torch  # noqa: F401  # the package in the build folder has no entry points

LIMIT = 240  # seconds without an answer of any rank: the test fails
SEED = int(os.environ.get("WEFT_TEST_SEED") or 1)
# The tensors' device type: cpu, cuda, or fakegpu of fake_device.
DEVICE = os.environ.get("WEFT_TEST_TORCH_DEVICE") or "cpu"
if DEVICE == "fakegpu":
    import fake_device  # noqa: F401
# CI runs the short form, too: tools/test.
SMALL = bool(os.environ.get("WEFT_TEST_SMALL") or os.environ.get("WEFT_TEST_SMALL_LONG"))


def fails(call, kind, *texts):
    """Checks that the call raises an exception of the kind with these texts, and returns it."""
    try:
        call()
    except kind as error:
        for text in texts:
            assert text in str(error), f"'{text}' is not in: {error}"
        return error
    raise AssertionError("the call passed")


def names(backend):
    """The argument of init_process_group for tensors of the CPU and of DEVICE."""
    return backend if DEVICE == "cpu" else f"cpu:{backend},{DEVICE}:{backend}"


def here():
    """The device of this rank's tensors."""
    return torch.get_default_device()


def synchronize():
    """Waits for the work on this rank's device. A wait for an operation there does not."""
    if DEVICE != "cpu":
        torch.get_device_module(DEVICE).synchronize()


def use_device(rank):
    """Makes a device the current and default one of this rank. Ranks share devices if there are fewer."""
    module = torch.get_device_module(DEVICE)
    module.set_device(rank % module.device_count())
    torch.set_default_device(f"{DEVICE}:{rank % module.device_count()}")


def _main(rank, size, folder, port, backend, timeout, options, function, arguments, results):
    try:
        torch.set_num_threads(1)
        faulthandler.enable()
        # torch's flight recorder writes a file when a collective fails. It imports torch's compiler for lines of code.
        os.environ.setdefault("TORCH_INCLUDE_STACK_TRACE", "0")
        os.environ.setdefault("TORCH_FR_DUMP_TEMP_FILE", os.path.join(folder, "flight_"))
        if DEVICE != "cpu":
            use_device(rank)
        if backend is not None:
            dist.init_process_group(
                names(backend),
                # torchrun's store: all threads of a rank share one connection.
                store=dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False),
                rank=rank,
                world_size=size,
                timeout=timedelta(seconds=timeout),
                pg_options=options() if options else None,
            )
        value = function(rank, size, *arguments)
        if dist.is_initialized():
            dist.destroy_process_group()
        results.put((rank, True, value))
    except BaseException:  # the parent shows it
        results.put((rank, False, traceback.format_exc()))


def _answer(children, results, answers, dies):
    """The next answer. A child that died without one, or does not answer, is a failure."""
    until = time.monotonic() + LIMIT
    while True:
        dead = [rank for rank, child in enumerate(children) if not child.is_alive() and rank not in dies]
        try:
            return results.get(timeout=1)
        except queue.Empty:
            for rank in dead:
                if rank not in answers:
                    raise AssertionError(f"rank {rank} ended with {children[rank].exitcode}") from None
            if time.monotonic() > until:
                for child in children:
                    if child.is_alive():
                        os.kill(child.pid, signal.SIGABRT)  # shows its threads
                        child.join()
                raise AssertionError(f"no rank answered for {LIMIT} seconds") from None


def _serve(parent):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    parent.send(store.port)
    parent.recv()  # until the parent kills this process


def run(size, function, *arguments, backend="weft", timeout=60, options=None, dies=()):
    """Returns what `function(rank, size, *arguments)` returned on each rank; None for ranks in `dies`.

    backend None: the function calls init_process_group."""
    # The children begin with the parent's imports, which take seconds.
    context = torch.multiprocessing.get_context("fork")
    results = context.Queue()
    # In a process of its own: a child that is forked beside the server's thread may inherit a lock that it holds.
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(theirs,), daemon=True)
    server.start()
    port = ours.recv()
    with tempfile.TemporaryDirectory() as folder:
        children = [
            context.Process(
                target=_main, args=(rank, size, folder, port, backend, timeout, options, function, arguments, results)
            )
            for rank in range(size)
        ]
        for child in children:
            child.start()
        answers = {}
        try:
            while len(answers) < size - len(dies):
                rank, good, value = _answer(children, results, answers, dies)
                if not good:
                    raise AssertionError(f"rank {rank} of {size} failed (WEFT_TEST_SEED={SEED}):\n{value}")
                answers[rank] = value
            for rank, child in enumerate(children):
                child.join(LIMIT)
                if child.exitcode != 0 and rank not in dies:
                    raise AssertionError(f"rank {rank} ended with {child.exitcode}")
        finally:
            for child in [*children, server]:
                if child.is_alive():
                    child.kill()
                child.join()
        return [answers.get(rank) for rank in range(size)]
