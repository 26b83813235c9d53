"""Compares collectives of torch.distributed on Weft with other backends, in turns, on CPU tensors of float32.

usage: collectives.py [--ranks 2,4] [--backends gloo] [--collectives all_reduce,...] [--max BYTES] [--rounds N] [--json FILE]

Each round measures every backend once, one after the other. A cell is the median of the rounds, in microseconds of the
slowest rank. The floor is torch's own backend "fake", whose calls return at once. `raw` is Weft's time divided by the other
backend's; `net` is the same without the floor. The status is 1 if a goal is missed. Sizes are bytes: of the tensor for all_reduce, broadcast and messages, of the
whole (all ranks) for the others.
"""

import argparse
import json
import math
import statistics
import sys
import time

import torch
import torch.distributed as dist

import weft.torch  # noqa: F401  # before the ranks are forked

import processes

# Upper limits that the project sets itself: geometric mean, every size.
LIMITS = {"all_reduce": {"net": (0.15, 0.4), "raw": (0.2, 1.0)}}
OTHER_LIMITS = {"raw": (0.3, 1.0)}


def calls(name, count, rank, size, group):
    part = max(count // size, 1)
    whole = torch.zeros(part * size)
    piece = torch.zeros(part)
    x = torch.zeros(count)
    peer = (rank + size // 2) % size

    def messages():
        if rank < size // 2:
            dist.send(x, peer, group=group)
            dist.recv(x, peer, group=group)
        else:
            dist.recv(x, peer, group=group)
            dist.send(x, peer, group=group)

    received = torch.zeros(part * size)
    return {
        "all_reduce": lambda: dist.all_reduce(x, group=group),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(whole, piece, group=group),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(piece, whole, group=group),
        "all_to_all_single": lambda: dist.all_to_all_single(received, whole, group=group),
        "broadcast": lambda: dist.broadcast(x, 0, group=group),
        "send_recv": messages,
    }[name]


COLLECTIVES = [
    "all_reduce",
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
    "all_to_all_single",
    "broadcast",
    "send_recv",
]


def once(call, repeats):
    begun = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - begun) / repeats


def measure(rank, size, groups, names, sizes, rounds):
    """{name: {bytes: {backend: microseconds}}}"""
    results = {}
    for name in names:
        for length in sizes:
            prepared = {backend: calls(name, length // 4, rank, size, group) for backend, group in groups.items()}
            repeats = {}
            for backend, call in prepared.items():
                for _ in range(3):
                    call()
                dist.barrier()
                # As many calls as 30 ms hold; all ranks agree.
                agreed = torch.tensor([once(call, 3)])
                dist.all_reduce(agreed, dist.ReduceOp.MAX)
                repeats[backend] = max(3, min(2000, int(0.03 / max(agreed.item(), 1e-6))))
            times = {backend: [] for backend in groups}
            for _ in range(rounds):
                for backend, call in prepared.items():
                    dist.barrier()
                    slowest = torch.tensor([once(call, repeats[backend])])
                    dist.all_reduce(slowest, dist.ReduceOp.MAX)
                    times[backend].append(slowest.item() * 1e6)
            results.setdefault(name, {})[length] = {key: statistics.median(each) for key, each in times.items()}
    return results


def mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values)) if values else float("nan")


def report(results, size, others):
    good = True
    for other in others:
        for name, rows in results.items():
            print(f"\n{name}, {size} ranks, weft and {other}\n")
            print("| bytes | floor us | weft us | other us | raw | net |\n|---:|---:|---:|---:|---:|---:|")
            ratios = {"raw": [], "net": []}
            for length, times in rows.items():
                floor, ours, theirs = times[processes.FLOOR], times["weft"], times[other]
                ratios["raw"].append(ours / theirs)
                ratios["net"].append(max(ours - floor, 0.05) / max(theirs - floor, 0.05))
                print(
                    f"| {processes.text_of_bytes(length)} | {floor:.1f} | {ours:.1f} | {theirs:.1f} "
                    f"| {ratios['raw'][-1]:.2f} | {ratios['net'][-1]:.2f} |"
                )
            for kind, (of_mean, of_each) in LIMITS.get(name, OTHER_LIMITS).items():
                average, worst = mean(ratios[kind]), max(ratios[kind])
                met = average <= of_mean and worst <= of_each
                good &= met
                print(
                    f"\n{kind}: geometric mean {average:.2f} (goal {of_mean}), largest {worst:.2f} (goal {of_each}): "
                    f"{'met' if met else 'missed'}"
                )
    return good


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--backends", default="gloo")
    parser.add_argument("--collectives", default=",".join(COLLECTIVES))
    parser.add_argument("--max", type=int, default=64 << 20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    options = parser.parse_args()
    others = options.backends.split(",")
    sizes = [8 << (3 * step) for step in range(9) if 8 << (3 * step) < options.max] + [options.max]
    everything, good = {}, True
    for size in (int(each) for each in options.ranks.split(",")):
        results = processes.run(
            size,
            [processes.FLOOR, "weft", *others],
            measure,
            options.collectives.split(","),
            sizes,
            options.rounds,
        )
        good &= report(results, size, others)
        everything[size] = results
    if options.json:
        with open(options.json, "w") as file:
            json.dump(everything, file, indent=1)
    sys.exit(not good)


if __name__ == "__main__":
    main()
