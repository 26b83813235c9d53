#!/usr/bin/env python3
"""Predicts a training step on GPUs that are not there: data-parallel (DDP) and sharded (FSDP).

`weft schedule simulate` gives the time of every collective.  This program computes the layers' times from FLOPs,
launches collectives in the order of src/train, and prints which part of the communication computation hides.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
from dataclasses import dataclass

HOST_RANKS = 8
PEAK_FLOPS = 989.4e12        # H100 SXM, dense bfloat16, of NVIDIA's data sheet
MEMORY_RATE = 3.35e12        # H100 SXM, bytes a second, of the same sheet
PARAMETER_BYTES = 2          # bfloat16
STATE_BYTES = 12             # float32 main values and the two moments of Adam
OPTIMIZER_BYTES = 28         # states are read and written, the gradient is read, the parameter is written
SHARD_ALIGNMENT = 16         # src/train/sharding/unit_layout.cpp
BUCKET_LIMITS = (1 << 20, 25 << 20)  # src/train/bucket_layout.cpp
BUFFERS = 2                  # whole units, and whole gradients: unit_gathers.cpp, unit_gradients.cpp
# Schedules that are the fastest on many hosts.  `all` would take hours there, because trees have no symmetry.
MANY_HOSTS = {"all_reduce": ("rail_tree", "rail_halving_doubling"),
              "all_gather": ("rail_ring", "ring"), "reduce_scatter": ("rail_ring", "ring")}


@dataclass(frozen=True)
class Model:
    layers: int
    width: int
    key_width: int            # of keys and of values
    inner_width: int          # of the feed-forward layer
    inner_matrices: int       # 3 with a gate
    vocabulary: int

    def units(self):
        """Units in forward order; each is a list of (parameters, is a matrix that multiplies)."""
        norm, d = (self.width, False), self.width
        layer = [norm, (d * d, True), (d * self.key_width, True), (d * self.key_width, True), (d * d, True), norm]
        layer += [(d * self.inner_width, True)] * self.inner_matrices
        return [[(self.vocabulary * d, False)]] + [layer] * self.layers + [[norm, (self.vocabulary * d, True)]]

    def parameters(self):
        return sum(count for unit in self.units() for count, _ in unit)

    def forward_flops(self, unit, sequence):
        """Of one token.  The attention counts in full, as in published figures."""
        multiplied = sum(count for count, multiplies in self.units()[unit] if multiplies)
        attention = 4 * self.width * sequence if 0 < unit <= self.layers else 0
        return 2 * multiplied + attention


MODELS = {"llama-7b": Model(32, 4096, 4096, 11008, 3, 32000), "llama-8b": Model(32, 4096, 1024, 14336, 3, 128256),
          "llama-70b": Model(80, 8192, 1024, 28672, 3, 32000), "mpt-70b": Model(80, 8192, 8192, 32768, 2, 50368),
          "tiny": Model(3, 256, 256, 1024, 2, 1000)}


class Simulator:
    """Times of collectives by `weft schedule simulate`; each is asked for once."""

    def __init__(self, weft, hosts, algorithm=None, settings=()):
        self.weft, self.hosts, self.algorithm, self.settings, self.known = weft, hosts, algorithm, settings, {}

    def collective(self, name, size):
        """The fastest algorithm's row."""
        if (name, size) not in self.known:
            algorithms = MANY_HOSTS[name] if self.hosts > 4 else ("all",)
            algorithms = (self.algorithm,) if self.algorithm else algorithms
            rows = [row for algorithm in algorithms for row in self.rows(name, algorithm, size)]
            self.known[name, size] = min(rows, key=lambda row: row["us"])
        return self.known[name, size]

    def rows(self, name, algorithm, size):
        command = [self.weft, "schedule", "simulate", algorithm, "--collective", name, "--hosts", str(self.hosts),
                   "--host", "dgx-h100", "--bytes", str(size), "--json"]
        for setting in self.settings:
            command += ["--set", setting]
        result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        return result["algorithms"] if "algorithms" in result else [dict(result, algorithm=algorithm)]


class Queue:
    """The launch queue of src/train: one collective at a time, in the order of launches."""

    def __init__(self, simulator):
        self.simulator, self.free_at, self.busy, self.used = simulator, 0.0, 0.0, {}
        self.moved, self.message_bytes = 0, 0.0

    def launch(self, now, name, size, elements):
        """Returns the time at which the collective ends.  An all-reduce moves each element twice, as ZeRO counts."""
        row = self.simulator.collective(name, size)
        self.free_at = max(now, self.free_at) + row["us"]
        self.busy += row["us"]
        self.moved += elements * (2 if name == "all_reduce" else 1)
        self.message_bytes += row["message_bytes"]
        self.used.setdefault(name, set()).add(row["algorithm"])
        return self.free_at


def buckets(counts):
    """Indices of parameters, which are in the order in which gradients become ready (assign_buckets)."""
    result, members, size = [], [], 0
    for index, count in enumerate(counts):
        members.append(index)
        size += count * PARAMETER_BYTES
        if size >= BUCKET_LIMITS[min(len(result), 1)]:
            result.append(members)
            members, size = [], 0
    return result + ([members] if members else [])


class Compute:
    """The time in us of each unit's forward and backward pass on one GPU."""

    def __init__(self, model, setting):
        rate = PEAK_FLOPS * setting.utilisation / 1e6
        tokens = setting.batch * setting.sequence
        self.forward = [model.forward_flops(unit, setting.sequence) * tokens / rate for unit in range(model.layers + 2)]
        again = [setting.checkpoint and 0 < unit <= model.layers for unit in range(model.layers + 2)]
        self.backward = [time * (3 if recomputes else 2) for time, recomputes in zip(self.forward, again)]
        self.total = sum(self.forward) + sum(self.backward)


def ddp(model, compute, queue):
    """Returns the end of the last all-reduce."""
    now, ready = sum(compute.forward), []
    for unit, time in reversed(list(zip(model.units(), compute.backward))):
        whole = sum(count for count, _ in unit)
        for count, _ in reversed(unit):
            now += time * count / whole
            ready.append((count, now))
    for bucket in buckets([count for count, _ in ready]):
        count = sum(ready[index][0] for index in bucket)
        queue.launch(ready[bucket[-1]][1], "all_reduce", count * PARAMETER_BYTES, count)
    return max(now, queue.free_at)


class Gathers:
    """UnitGathers: the unit that comes next is prefetched if a buffer is free."""

    def __init__(self, queue, counts, sizes, keeps_last):
        self.queue, self.counts, self.sizes, self.kept = queue, counts, sizes, len(sizes) - 1 if keeps_last else -1
        self.trace = list(range(len(sizes))) + list(reversed(range(len(sizes))))
        self.place, self.there = 0, {}  # there: the end of each unit's all-gather

    def start(self, unit, now):
        if unit not in self.there:
            self.there[unit] = self.queue.launch(now, "all_gather", self.sizes[unit], self.counts[unit])

    def gather(self, unit, now):
        """Returns the time at which the unit is there."""
        self.start(unit, now)
        now = max(now, self.there[unit])
        self.place += 1
        if self.place < len(self.trace) and len(self.there) < BUFFERS:
            self.start(self.trace[self.place], now)
        return now

    def release(self, unit, forward):
        if not (forward and unit == self.kept):
            del self.there[unit]


def fsdp(model, compute, queue, setting):
    """Returns the end of the last reduce-scatter."""
    padding = setting.hosts * HOST_RANKS * SHARD_ALIGNMENT
    counts = [sum(count for count, _ in unit) for unit in model.units()]
    padded = [-(-count * PARAMETER_BYTES // padding) * padding for count in counts]
    gathers = Gathers(queue, counts, padded, setting.keeps_last)
    now, reduced = 0.0, []
    for unit, time in enumerate(compute.forward):
        now = gathers.gather(unit, now) + time
        gathers.release(unit, True)
    for unit in reversed(range(len(padded))):
        now = gathers.gather(unit, now)
        if len(reduced) >= BUFFERS:
            now = max(now, reduced[-BUFFERS])  # a third whole gradient waits for the oldest reduction
        now += compute.backward[unit]
        gathers.release(unit, False)
        size = padded[unit] // PARAMETER_BYTES * setting.reduce_bytes
        reduced.append(queue.launch(now, "reduce_scatter", size, counts[unit]))
    return max(now, queue.free_at)


def activation_bytes(model, setting):
    """34 bytes for each token and element of a layer's width (Korthikanti et al., 2022), and float32 logits."""
    tokens = setting.batch * setting.sequence
    layer = 34 * tokens * model.width
    layers = 2 * tokens * model.width * model.layers + layer if setting.checkpoint else layer * model.layers
    return layers + 6 * tokens * model.vocabulary


def memory_bytes(model, setting):
    parameters, ranks = model.parameters(), setting.hosts * HOST_RANKS
    state = PARAMETER_BYTES + PARAMETER_BYTES + STATE_BYTES
    if setting.mode == "ddp":
        return parameters * state + activation_bytes(model, setting)
    largest = max(sum(count for count, _ in unit) for unit in model.units())
    whole = BUFFERS * largest * (PARAMETER_BYTES + setting.reduce_bytes)
    return parameters * state / ranks + whole + activation_bytes(model, setting)


def step(setting, simulator):
    """One step of the second or a later iteration, times in ms."""
    model, queue = MODELS[setting.model], Queue(simulator)
    compute = Compute(model, setting)
    ranks, parameters = setting.hosts * HOST_RANKS, model.parameters()
    end = ddp(model, compute, queue) if setting.mode == "ddp" else fsdp(model, compute, queue, setting)
    own = parameters if setting.mode == "ddp" else parameters / ranks
    optimizer = own * OPTIMIZER_BYTES / MEMORY_RATE * 1e6
    exposed, total = end - compute.total, end + optimizer
    tokens = setting.batch * setting.sequence
    flops = 3 * sum(model.forward_flops(unit, setting.sequence) for unit in range(model.layers + 2))
    return {"model": setting.model, "mode": setting.mode, "ranks": ranks, "parameters": parameters,
            "step_ms": total / 1e3, "compute_ms": compute.total / 1e3, "optimizer_ms": optimizer / 1e3,
            "communication_ms": queue.busy / 1e3, "exposed_ms": exposed / 1e3,
            "hidden_ms": (queue.busy - exposed) / 1e3, "memory_gb": memory_bytes(model, setting) / 1e9,
            "moved_elements": queue.moved, "message_bytes": queue.message_bytes,
            "tokens_per_second": tokens / total * 1e6, "mfu": flops * tokens / (total * PEAK_FLOPS / 1e6),
            "algorithms": {name: sorted(used) for name, used in queue.used.items()}}


def table_row(row):
    names = ", ".join(sorted({name for used in row["algorithms"].values() for name in used}))
    return (f"| {row['model']} | {row['mode']} | {row['ranks']} | {row['step_ms']:.0f} | {row['compute_ms']:.0f} | "
            f"{row['optimizer_ms']:.1f} | {row['communication_ms']:.0f} | {row['exposed_ms']:.0f} | "
            f"{row['hidden_ms']:.0f} | {row['memory_gb']:.0f} | {row['moved_elements'] / row['parameters']:.2f} | "
            f"{row['tokens_per_second']:.0f} | {100 * row['mfu']:.1f} | {names} |")


HEADING = ("| model | mode | GPUs | step ms | compute | optimizer | communication | exposed | hidden | GB | moved / P |"
           " tokens/s a GPU | MFU % | algorithms |\n" + "|---" * 14 + "|")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    built = pathlib.Path(__file__).resolve().parents[1] / "build" / "tools" / "weft"
    parser.add_argument("--weft", default=os.environ.get("WEFT_COMMAND", str(built)), help="the command weft")
    parser.add_argument("--model", nargs="+", default=["llama-7b", "llama-70b"], choices=sorted(MODELS))
    parser.add_argument("--mode", nargs="+", default=["ddp", "fsdp"], choices=["ddp", "fsdp"])
    parser.add_argument("--hosts", nargs="+", type=int, default=[128], help="of 8 H100, 8 adapters of 400 Gbit/s")
    parser.add_argument("--batch", type=int, default=2, help="sequences a GPU and step")
    parser.add_argument("--sequence", type=int, default=4096, help="tokens of a sequence")
    parser.add_argument("--checkpoint", action="store_true", help="layers are computed again in the backward pass")
    parser.add_argument("--utilisation", type=float, default=0.54, help="of the peak while a GPU computes")
    parser.add_argument("--reduce-bytes", type=int, default=2, choices=[2, 4], help="of an element, by fsdp")
    parser.add_argument("--keep-last", dest="keeps_last", action="store_true",
                        help="the last unit stays whole between the passes (weftTrainUnit_t.reshardRanks = 1)")
    parser.add_argument("--algorithm", help="of all collectives; else the fastest that the simulator finds")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="as of weft schedule simulate")
    parser.add_argument("--json", action="store_true", help="a JSON object a line")
    return parser.parse_args()


def main():
    chosen = arguments()
    if not chosen.json:
        print(HEADING)
    for hosts in chosen.hosts:
        simulator = Simulator(chosen.weft, hosts, chosen.algorithm, chosen.settings)
        for model in chosen.model:
            for mode in chosen.mode:
                setting = argparse.Namespace(**{**vars(chosen), "hosts": hosts, "model": model, "mode": mode})
                row = step(setting, simulator)
                print(json.dumps(row) if chosen.json else table_row(row), flush=True)


if __name__ == "__main__":
    sys.exit(main())
