"""train_accelerate.py: Accelerate on Weft. Start: torchrun --nproc-per-node 2 train_accelerate.py"""
import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader

import letters

backend = letters.arguments().backend
# On CPUs Accelerate allows "gloo" and "mpi" alone in InitProcessGroupKwargs. It uses the process group that exists.
dist.init_process_group(backend)
accelerator = Accelerator(cpu=True)
model = letters.Model()
optimizer = torch.optim.AdamW(model.parameters(), **letters.ADAMW)
rows = DataLoader(letters.data(), letters.BATCH // accelerator.num_processes)
model, optimizer, rows = accelerator.prepare(model, optimizer, rows)
losses = []
with profile(activities=[ProfilerActivity.CPU]) as trace:
    for x, y in rows:
        loss = letters.loss_of(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), letters.GREATEST_NORM)
        optimizer.step()
        losses.append(accelerator.gather(loss.detach()).mean().item())
letters.check("Accelerate", backend, losses, trace)
accelerator.end_training()  # destroys the process group
