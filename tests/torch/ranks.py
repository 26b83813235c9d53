"""Runs a function as the ranks of a process group of Weft, each in a process of its own."""

import os
import tempfile
import traceback
from datetime import timedelta

import torch.distributed as dist
import torch.multiprocessing

LIMIT = 120  # seconds; a rank that runs longer fails the test


def _main(rank, size, folder, timeout, options, function, arguments, results):
    try:
        os.environ["WEFT_TEST_RANK"] = str(rank)
        group_options = None
        if options:
            import weft.torch

            group_options = weft.torch.Options(timeout=timedelta(seconds=timeout), **options)
        store = dist.FileStore(os.path.join(folder, "store"), size)
        dist.init_process_group(
            "weft", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=timeout), pg_options=group_options
        )
        value = function(rank, size, *arguments)
        if dist.is_initialized():
            dist.destroy_process_group()
        results.put((rank, True, value))
    except BaseException:  # the parent shows it
        results.put((rank, False, traceback.format_exc()))
        results.close()
        results.join_thread()
        os._exit(1)


def run(size, function, *arguments, timeout=60, options=None, may_die=()):
    """Returns what `function(rank, size, *arguments)` returned on each rank. Ranks in may_die may end without an answer."""
    context = torch.multiprocessing.get_context("fork")
    results = context.SimpleQueue() if False else context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        children = [
            context.Process(target=_main, args=(rank, size, folder, timeout, options, function, arguments, results))
            for rank in range(size)
        ]
        for child in children:
            child.start()
        answers = {}
        while len(answers) < size - len(may_die):
            rank, good, value = results.get(timeout=LIMIT)
            if not good:
                for child in children:
                    child.kill()
                raise AssertionError(f"rank {rank} failed:\n{value}")
            answers[rank] = value
        for child in children:
            child.join(LIMIT)
            if child.exitcode is None:
                child.kill()
                raise AssertionError("a rank did not end")
        return [answers.get(rank) for rank in range(size)]
