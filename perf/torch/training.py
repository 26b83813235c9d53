"""Compares training steps on Weft with other backends, in turns: DDP and FSDP2 of a perceptron and a small transformer.

usage: training.py [--ranks 2] [--backends gloo] [--rounds N] [--json FILE]

A cell is the median of the rounds, in milliseconds of the slowest rank. The floor is torch's backend "fake", whose calls
return at once; DDP needs results, so that its floor is torch's hook that reduces nothing. `net` is Weft's time divided by the other backend's, both without the floor: the time of communication.
"""

import argparse
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

import weft.torch  # noqa: F401  # before the ranks are forked

import processes

LIMIT = 0.3


def perceptron():
    """10 million parameters."""
    layers = [nn.Linear(512, 1536), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Linear(1536, 1536), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(1536, 16)), torch.randn(16, 512)


def transformer():
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), torch.randn(4, 32, 128)


def prepare(make, kind, backend, groups):
    group = groups[backend]
    torch.manual_seed(1)
    model, x = make()
    if kind == "ddp":
        is_floor = backend == processes.FLOOR
        model = DistributedDataParallel(model, process_group=groups["weft"] if is_floor else group)
        if is_floor:
            model.register_comm_hook(None, noop_hook)
    else:
        mesh = DeviceMesh.from_group(group, "cpu")
        for part in getattr(model, "layers", model):
            if any(True for _ in part.parameters()):
                fully_shard(part, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def measure(rank, size, groups, rounds):
    results = {}
    for make in (perceptron, transformer):
        for kind in ("ddp", "fsdp2"):
            steps = {backend: prepare(make, kind, backend, groups) for backend in groups}
            times = {backend: [] for backend in groups}
            for step in steps.values():
                for _ in range(3):
                    step()
            for _ in range(rounds):
                for backend, step in steps.items():
                    dist.barrier()
                    begun = time.perf_counter()
                    for _ in range(3):
                        step()
                    slowest = torch.tensor([(time.perf_counter() - begun) / 3])
                    dist.all_reduce(slowest, dist.ReduceOp.MAX)
                    times[backend].append(slowest.item() * 1e3)
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
            print(f"| step | floor ms | weft ms | other ms | net (goal {LIMIT}) |\n|---|---:|---:|---:|---:|")
            for name, times in results.items():
                floor, ours, theirs = times[processes.FLOOR], times["weft"], times[other]
                net = max(ours - floor, 0.001) / max(theirs - floor, 0.001)
                print(f"| {name} | {floor:.1f} | {ours:.1f} | {theirs:.1f} | {net:.2f} |")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(everything, file, indent=1)


if __name__ == "__main__":
    main()
