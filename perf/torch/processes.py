"""Runs a function as ranks with one process group for each backend, for the comparisons of this folder."""

import os
import sys
import tempfile
from datetime import timedelta

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
import torch.multiprocessing

# A backend of torch whose calls return at once: its time is that of torch and Python.
FLOOR = "fake"


def _main(rank, size, folder, backends, function, arguments, queue):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(os.path.join(folder, "store"), size),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=120),
    )
    groups = {}
    for backend in backends:
        if backend == FLOOR:
            from torch.testing._internal.distributed import fake_pg  # noqa: F401  # registers it
        groups[backend] = dist.new_group(backend=backend)
    result = function(rank, size, groups, *arguments)
    dist.barrier()
    if rank == 0:
        queue.put(result)
    dist.destroy_process_group()


def run(size, backends, function, *arguments):
    """Returns what rank 0's `function(rank, size, groups, *arguments)` returned."""
    context = torch.multiprocessing.get_context("fork")
    queue = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        children = [
            context.Process(target=_main, args=(rank, size, folder, backends, function, arguments, queue))
            for rank in range(size)
        ]
        for child in children:
            child.start()
        result = None
        while result is None:
            try:
                result = queue.get(timeout=1)
            except Exception:  # queue.Empty
                if any(child.exitcode not in (None, 0) for child in children):
                    for child in children:
                        child.kill()
                    sys.exit("a rank ended with an error")
        for child in children:
            child.join()
    return result


def text_of_bytes(count):
    for unit in ("", "K", "M"):
        if count < 1024:
            return f"{count}{unit}"
        count //= 1024
    return f"{count}G"
