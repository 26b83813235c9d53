"""A training with checkpoints. restart_test.py starts it by torchrun, and its last rank kills itself in its first life."""

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import weft.torch  # noqa: F401  # the package in the build folder has no entry points

STEPS = 6
SAVED_EVERY = 2
KILLED_AT = 3  # the next life begins with step 2


def train(rank, size, folder, before_step=lambda step: None):
    """Goes on from the checkpoint in the folder. Returns its first step and the losses of all steps."""
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(8, 3).double())
    optim = torch.optim.Adam(model.parameters(), lr=0.01)
    saved = Path(folder, "checkpoint")
    begin, losses = 0, []
    if saved.exists():
        state = torch.load(saved)
        model.load_state_dict(state["model"])
        optim.load_state_dict(state["optim"])
        begin, losses = state["step"], state["losses"]
    for step in range(begin, STEPS):
        before_step(step)
        source = torch.Generator().manual_seed(100 * step + rank)
        x, y = (torch.randn(4, width, generator=source, dtype=torch.float64) for width in (8, 3))
        optim.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optim.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses.append(mean.item())
        if (step + 1) % SAVED_EVERY == 0 and rank == 0:
            state = {"model": model.state_dict(), "optim": optim.state_dict(), "step": step + 1, "losses": losses}
            torch.save(state, saved.with_name("new"))
            os.replace(saved.with_name("new"), saved)
    return begin, losses


def main(folder):
    dist.init_process_group("weft")
    rank, size = dist.get_rank(), dist.get_world_size()
    life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])

    def die(step):
        if life == 0 and step == KILLED_AT:
            # torchrun ends the other ranks, which shall say first what they saw.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            dist.barrier()
            if rank == size - 1:
                os.kill(os.getpid(), signal.SIGKILL)

    begin, losses = train(rank, size, folder, die)
    Path(folder, f"end {rank}").write_text(json.dumps({"life": life, "begin": begin, "losses": losses}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
