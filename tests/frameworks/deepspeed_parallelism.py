"""DeepSpeed's pipeline, experts and checkpoints. frameworks_test.py compares the losses on Weft with those on Gloo."""

import tempfile
from pathlib import Path

import deepspeed
import letters
import torch
import torch.distributed as dist
from deepspeed.moe.layer import MoE
from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer
from deepspeed.pipe import PipelineModule
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader

ROWS = letters.BATCH // 2


def config(stage, batches=1):
    return {
        "train_micro_batch_size_per_gpu": ROWS,
        "gradient_accumulation_steps": batches,
        "optimizer": {"type": "AdamW", "params": letters.ADAMW},
        "zero_optimization": {"stage": stage},
    }


def step(engine, x, y):
    loss = letters.loss_of(engine(x), y)
    engine.backward(loss)
    engine.step()
    return letters.mean_of_ranks(loss)


def pipeline():
    """Two stages, which send activations and gradients to each other."""
    model = letters.Model()
    stages = PipelineModule([model.embedding, *model.layers, model.head], num_stages=2, loss_fn=letters.loss_of)
    engine, *_ = deepspeed.initialize(model=stages, model_parameters=stages.parameters(), config=config(0, batches=2))
    rows = iter(DataLoader(letters.data(), ROWS))
    return [engine.train_batch(rows).item() for _ in range(letters.STEPS)]


class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = letters.Model()
        expert = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 32))
        self.experts = MoE(32, expert, num_experts=4, ep_size=2, k=1, use_rts=False)

    def forward(self, x):
        x = self.model.layers(self.model.embedding(x))
        return self.model.head(x + self.experts(x)[0])


def experts():
    """Two experts on each rank, which tokens reach by all_to_all."""
    model = Experts()
    groups = split_params_into_different_moe_groups_for_optimizer({"params": list(model.parameters()), "name": "all"})
    engine, *_ = deepspeed.initialize(model=model, model_parameters=groups, config=config(2))
    return [step(engine, x, y) for x, y in letters.my_rows()]


def made():
    model = letters.Model()
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config(3))[0]


def checkpoint():
    """A ZeRO-3 engine that is saved, and loaded by another."""
    engine = made()
    folder = [tempfile.mkdtemp(dir=Path.home())]  # which the test removes
    dist.broadcast_object_list(folder)
    losses = []
    for index, (x, y) in enumerate(letters.my_rows()):
        if index == letters.STEPS // 2:
            engine.save_checkpoint(folder[0])
            engine.destroy()
            engine = made()
            engine.load_checkpoint(folder[0])
        losses.append(step(engine, x, y))
    return losses


backend = letters.arguments().backend
deepspeed.init_distributed(dist_backend=backend)
for train in (experts, checkpoint, pipeline):  # a pipeline leaves its groups behind
    with profile(activities=[ProfilerActivity.CPU]) as trace:
        result = train()
    letters.report(train.__name__, backend, result, trace)
dist.destroy_process_group()
