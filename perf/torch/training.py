"""Compares training steps on Weft with other backends, in turns: DDP and FSDP2 of a perceptron and a small transformer,
and weft.train.Ddp with torch's DDP on the other backend.

usage: training.py [--ranks 2] [--backends gloo] [--rounds N] [--json FILE]

A cell is the median of the rounds, in milliseconds of the slowest rank. The floor is torch's backend "fake", whose calls
return at once; DDP needs results, so that its floor is torch's hook that reduces nothing. The floor of weft.train.Ddp is
the model alone, which every rank computes by itself. `net` is Weft's time divided by the other backend's, both without
the floor: the time of communication. The last losses of weft.train.Ddp and of torch's DDP must be equal.
"""

import argparse
import functools
import json
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import weft
import weft.torch  # noqa: F401  # before the ranks are forked

import processes

LIMITS = {"ddp": 0.3, "fsdp2": 0.3, "weft.train": 0.4}


def perceptron():
    """10 million parameters."""
    layers = [nn.Linear(512, 1536), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Linear(1536, 1536), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(1536, 16)), torch.randn(16, 512)


def transformer():
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), torch.randn(4, 32, 128)


class WeftDdp:
    """A model whose gradients live in the buckets of weft.train.Ddp; torch reports each as soon as it is complete."""

    def __init__(self, comm, model):
        self.model, self.named = model, dict(model.named_parameters())
        self.ddp = weft.train.Ddp(comm, {name: parameter.detach() for name, parameter in self.named.items()})
        for name, parameter in self.named.items():
            parameter.register_post_accumulate_grad_hook(functools.partial(self.ready, name))

    def ready(self, name, _):
        self.ddp.ready(name)

    def zero_grad(self):
        for name, parameter in self.named.items():
            parameter.grad = self.ddp.gradient(name).zero_()

    def backward(self, x):
        with self.ddp.iteration():
            self.zero_grad()
            loss = self.model(x).square().mean()
            loss.backward()
        return loss


class Torch:
    """A model alone, or one that torch distributes."""

    def __init__(self, model):
        self.model = model

    def backward(self, x):
        self.model.zero_grad()
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


def engine_of(kind, backend, groups, comm, model):
    is_floor, group = backend == processes.FLOOR, groups[backend]
    if kind == "weft.train" and is_floor:
        return Torch(model)
    if kind == "weft.train" and backend == "weft":
        return WeftDdp(comm, model)
    if kind in ("ddp", "weft.train"):
        model = DistributedDataParallel(model, process_group=groups["weft"] if is_floor else group)
        if is_floor:
            model.register_comm_hook(None, noop_hook)
        return Torch(model)
    mesh = DeviceMesh.from_group(group, "cpu")
    for part in getattr(model, "layers", model):
        if any(True for _ in part.parameters()):
            fully_shard(part, mesh=mesh)
    return Torch(fully_shard(model, mesh=mesh))


def prepare(make, kind, backend, groups, comm):
    torch.manual_seed(1)
    model, x = make()
    engine = engine_of(kind, backend, groups, comm, model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = x + comm.rank  # the ranks' data differ

    def step():
        loss = engine.backward(x)
        optimizer.step()
        return loss.item()

    return step


def measure(rank, size, groups, rounds):
    results = {}
    ids = [weft.unique_id() if rank == 0 else None]
    dist.broadcast_object_list(ids)
    comm = weft.init(rank=rank, size=size, unique_id=ids[0])
    for make in (perceptron, transformer):
        for kind in LIMITS:
            steps = {backend: prepare(make, kind, backend, groups, comm) for backend in groups}
            times, losses = {backend: [] for backend in groups}, {}
            for step in steps.values():
                for _ in range(3):
                    step()
            for _ in range(rounds):
                for backend, step in steps.items():
                    dist.barrier()
                    begun = time.perf_counter()
                    for _ in range(3):
                        losses[backend] = step()
                    slowest = torch.tensor([(time.perf_counter() - begun) / 3])
                    dist.all_reduce(slowest, dist.ReduceOp.MAX)
                    times[backend].append(slowest.item() * 1e3)
            if len({f"{loss:.4g}" for backend, loss in losses.items() if backend != processes.FLOOR}) > 1:
                raise RuntimeError(f"{make.__name__}, {kind}: the losses differ: {losses}")
            results[f"{make.__name__}, {kind}"] = {key: statistics.median(each) for key, each in times.items()}
    return results


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--ranks", default="2")
    parser.add_argument("--backends", default="gloo")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json")
    options = parser.parse_args()
    others = options.backends.split(",")
    everything = {}
    for size in (int(each) for each in options.ranks.split(",")):
        results = processes.run(size, [processes.FLOOR, "weft", *others], measure, options.rounds)
        everything[size] = results
        for other in others:
            print(f"\n{size} ranks, weft and {other}\n")
            print("| step | floor ms | weft ms | other ms | net | goal |\n|---|---:|---:|---:|---:|---:|")
            for name, times in results.items():
                floor, ours, theirs = times[processes.FLOOR], times["weft"], times[other]
                net = max(ours - floor, 0.001) / max(theirs - floor, 0.001)
                goal = LIMITS[name.split(", ")[1]]
                print(f"| {name} | {floor:.1f} | {ours:.1f} | {theirs:.1f} | {net:.2f} | {goal} |")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(everything, file, indent=1)


if __name__ == "__main__":
    main()
