"""train_torch.py: the GPT of train.cpp with torch as its compute engine, trained by Weft's primitives or by torch's.

    torchrun --nproc-per-node 2 examples/train/train_torch.py --mode all docs/guide docs/design

Modes: torch-ddp and torch-fsdp are torch's classes over the backend "weft" (or --backend gloo). weft-ddp and weft-fsdp
use weft.train. All learn the same; the last lines show their times and memory beside each other. The first values and
the batches are those of train.cpp, so its losses are the same, too.
"""

import argparse
import contextlib
import functools
import math
import multiprocessing
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

import weft

VOCABULARY = 97
MODES = "torch-ddp", "weft-ddp", "torch-fsdp", "weft-fsdp"


def random_bits(seed, stream, index):
    """Random numbers of 64 bits that depend on nothing but the arguments (splitmix64, as in gpt.hpp)."""
    with np.errstate(over="ignore"):
        z = np.uint64((seed * 0x100000001B3 + stream) * 0x9E3779B97F4A7C15 % 2**64)
        z = z + np.asarray(index, np.uint64) * np.uint64(0xD1342543DE82EF95)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


class Text:
    """Tokens of files, and of the *.md of folders. The last tenth is for validation."""

    def __init__(self, paths, context):
        letters = b""
        for path in map(Path, paths):
            for file in sorted(path.glob("*.md")) if path.is_dir() else [path]:
                letters += file.read_bytes()
        raw = np.frombuffer(letters, np.uint8).astype(np.int64)
        printable = (raw >= 32) & (raw <= 126)
        self.tokens = torch.from_numpy(np.where(printable, raw - 31, np.where(raw == 10, 0, 96)))
        self.training = len(raw) // 10 * 9
        self.context = context

    def batch(self, places):
        rows = torch.stack([self.tokens[place : place + self.context + 1] for place in places])
        return rows[:, :-1], rows[:, 1:]

    def training_batch(self, seed, step, first, count):
        """Sequences of the global batch of a step: the same for any number of ranks."""
        bits = random_bits(seed, step << 32 | 0xDA7A, np.arange(first, first + count))
        return self.batch([int(b) % (self.training - self.context) for b in bits])

    def validation_batch(self, count):
        places = len(self.tokens) - self.training - self.context
        return self.batch([self.training + places * i // count for i in range(count)])


class Embeddings(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, options.width)
        self.position = nn.Embedding(options.context, options.width)

    def forward(self, tokens):
        return self.token(tokens) + self.position.weight


class Block(nn.Module):
    def __init__(self, options):
        super().__init__()
        width, self.heads = options.width, options.heads
        self.norm1, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Head(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.norm, self.head = nn.LayerNorm(options.width), nn.Linear(options.width, VOCABULARY, bias=False)

    def forward(self, x):
        return self.head(self.norm(x))


class Gpt(nn.Sequential):
    """Its children are the units that sharded training gathers."""

    def __init__(self, options):
        super().__init__(Embeddings(options), *(Block(options) for _ in range(options.layers)), Head(options))
        with torch.no_grad():
            for number, (name, parameter) in enumerate(self.named_parameters()):
                self.fill(options, number, name, parameter)

    @staticmethod
    def fill(options, number, name, parameter):
        """The first values of gpt.hpp, where a matrix of a linear layer has its inputs as rows."""
        if parameter.dim() == 1:
            parameter.fill_(float("norm" in name and name.endswith("weight")))
            return
        deviation = {"token": 0.2, "position": 0.1}.get(name.split(".")[1], 0.6 / math.sqrt(options.width))
        if name.split(".")[1] in ("out", "down"):
            deviation /= math.sqrt(2 * options.layers)
        bits = random_bits(options.seed, 1 + number, np.arange(2 * parameter.numel()))
        uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53
        normal = deviation * np.sqrt(-2 * np.log(uniform[::2])) * np.cos(6.283185307179586 * uniform[1::2])
        table = name.startswith("0.")
        rows = torch.from_numpy(normal).reshape(parameter.shape if table else parameter.T.shape)
        parameter.copy_(rows if table else rows.T)


class TorchDdp:
    """torch's DistributedDataParallel."""

    def __init__(self, model, comm):
        self.model = nn.parallel.DistributedDataParallel(model)
        self.parameters = list(model.parameters())

    def step(self, loss_of):
        for parameter in self.parameters:
            parameter.grad = None
        loss = loss_of(self.model)
        loss.backward()
        return loss

    def evaluate(self, loss_of):
        with torch.no_grad():
            return loss_of(self.model)

    def close(self):
        pass


class TorchFsdp(TorchDdp):
    """torch's FSDP2."""

    def __init__(self, model, comm):
        from torch.distributed.fsdp import fully_shard

        mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
        for unit in model:
            fully_shard(unit, mesh=mesh)
        self.model = fully_shard(model, mesh=mesh)
        self.parameters = list(model.parameters())


class WeftDdp(TorchDdp):
    """weft.train.Ddp: gradients live in its buckets. torch reports each as soon as it is complete."""

    def __init__(self, model, comm):
        self.model, self.parameters, self.named = model, list(model.parameters()), dict(model.named_parameters())
        self.ddp = weft.train.Ddp(comm, {name: parameter.detach() for name, parameter in self.named.items()})
        for name, parameter in self.named.items():
            parameter.register_post_accumulate_grad_hook(functools.partial(self.ready, name))

    def ready(self, name, _):
        self.ddp.ready(name)

    def step(self, loss_of):
        with self.ddp.iteration():
            for name, parameter in self.named.items():
                parameter.grad = self.ddp.gradient(name).zero_()
            loss = loss_of(self.model)
            loss.backward()
        return loss

    def close(self):  # no array may lie in the Ddp's memory
        for parameter in self.parameters:
            parameter.grad = None
        self.ddp.close()


class WeftUnit:
    """A module whose parameters are a unit of a weft.train.Shard: whole around its forward and its backward pass."""

    def __init__(self, shard, name, module):
        self.shard, self.name, self.missing = shard, name, 0
        self.named = {f"{name}.{each}": parameter for each, parameter in module.named_parameters()}
        module.register_forward_pre_hook(self.before_forward)
        module.register_forward_hook(self.after_forward)
        module.register_full_backward_pre_hook(self.before_backward)
        for parameter in self.named.values():
            parameter.register_post_accumulate_grad_hook(self.after_gradient)
            parameter.data = torch.empty(0)

    def gather(self, backward):
        values = self.shard.gather(self.name, backward=backward)
        for name, parameter in self.named.items():
            parameter.data = values[name]
        return values

    def release(self, values):
        for parameter in self.named.values():
            parameter.data = torch.empty(0)
        values.release()

    # Autograd must not keep views of memory that the release gives to other units: it keeps their places.
    def pack(self, kept):
        for name, parameter in self.named.items():
            offset = kept.data_ptr() - parameter.data_ptr()
            if 0 <= offset < parameter.nbytes:
                return name, kept.shape, kept.stride(), offset // kept.element_size()
        return kept

    def unpack(self, kept):
        if isinstance(kept, torch.Tensor):
            return kept
        name, shape, stride, offset = kept
        return self.named[name].detach().as_strided(shape, stride, offset)

    def before_forward(self, module, _):
        self.values = self.gather(backward=not torch.is_grad_enabled())
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack)
        self.hooks.__enter__()

    def after_forward(self, module, _, output):
        self.hooks.__exit__()
        self.release(self.values)

    def before_backward(self, module, _):
        self.values = self.gather(backward=True)
        for name, parameter in self.named.items():
            parameter.grad = self.shard.gradient(name)
        self.missing = len(self.named)

    def after_gradient(self, _):
        self.missing -= 1
        if self.missing == 0:
            for parameter in self.named.values():
                parameter.grad = None
            self.release(self.values)
            self.shard.reduce_scatter(self.name)


class WeftFsdp(TorchDdp):
    """weft.train.Shard: the optimizer sees this rank's pieces."""

    def __init__(self, model, comm):
        units = {name: {f"{name}.{each}": parameter.detach() for each, parameter in unit.named_parameters()}
                 for name, unit in model.named_children()}
        decays = {name: len(x.shape) > 1 for unit in units.values() for name, x in unit.items()}
        self.model = model
        self.shard = weft.train.Shard(comm, units, reshard_ranks={list(units)[-1]: 1})
        self.units = [WeftUnit(self.shard, name, unit) for name, unit in model.named_children()]
        self.pieces = {name: nn.Parameter(self.shard.piece(name).values) for name in decays}
        # The optimizer sees one dimension: the matrices are named for it.
        self.parameters = list(self.pieces.values())
        for name, piece in self.pieces.items():
            piece.is_matrix = decays[name]

    def step(self, loss_of):
        self.shard.zero_gradients()
        with self.shard.iteration():
            loss = loss_of(self.model)
            loss.backward()
        for name, piece in self.pieces.items():
            piece.grad = self.shard.piece(name).gradient
        return loss

    def evaluate(self, loss_of):
        with self.shard.iteration():
            return super().evaluate(loss_of)

    def close(self):  # no array may lie in the Shard's memory
        for piece in self.parameters:
            piece.grad, piece.data = None, torch.empty(0)
        self.shard.close()


KINDS = {"torch-ddp": TorchDdp, "weft-ddp": WeftDdp, "torch-fsdp": TorchFsdp, "weft-fsdp": WeftFsdp}


def rate_at(options, step):
    """A linear warm-up, then a cosine down to a tenth."""
    warm = min(1.0, (step + 1) / (0.05 * options.steps))
    return options.rate * warm * (0.55 + 0.45 * math.cos(math.pi * step / options.steps))


def optimizer_of(parameters):
    matrices = [p for p in parameters if getattr(p, "is_matrix", p.dim() > 1)]
    others = [p for p in parameters if not getattr(p, "is_matrix", p.dim() > 1)]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}],
                             betas=(0.9, 0.99))


def kib(field):
    """A number of /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    return 0


def trained(mode, options, comm):
    """Trains, and returns the losses, the validation loss, the milliseconds of a step and the MiB of new memory."""
    text = Text(options.texts, options.context)
    x, y = text.validation_batch(1)
    F.cross_entropy(Gpt(options)(x).flatten(0, 1), y.flatten()).backward()  # torch's own memory of the first step
    before = kib("VmRSS")
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    engine = KINDS[mode](Gpt(options), comm)
    optimizer = optimizer_of(engine.parameters)
    share = options.batch // comm.size
    losses, times = [], []
    for step in range(options.steps):
        x, y = text.training_batch(options.seed, step, comm.rank * share, share)
        begin = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = rate_at(options, step)
        loss = engine.step(lambda model: F.cross_entropy(model(x).flatten(0, 1), y.flatten()))
        optimizer.step()
        times.append(time.perf_counter() - begin)
        losses.append(float(comm.all_reduce(loss.detach().double(), "avg")))
        if comm.rank == 0 and ((step + 1) % options.report == 0 or step + 1 == options.steps):
            print(f"{mode}: step {step + 1} loss {losses[-1]:.4f}", flush=True)
    memory = (kib("VmHWM") - before) / 1024
    x, y = text.validation_batch(128)
    validation = float(engine.evaluate(lambda model: F.cross_entropy(model(x).flatten(0, 1), y.flatten())))
    engine.close()
    return losses, validation, 1000 * float(np.median(times)), memory


def parsed(words=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", nargs="+", help="files, or folders with *.md")
    parser.add_argument("--mode", choices=[*MODES, "all"], default="all")
    parser.add_argument("--backend", default="weft", help="of torch.distributed")
    for name, value in {"steps": 100, "batch": 16, "seed": 1, "layers": 3, "width": 96, "heads": 4, "context": 64,
                        "report": 50}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rate", type=float, default=6e-3)
    return parser.parse_args(words)


def communicator():
    """A communicator of the same ranks as torch's."""
    ids = [weft.unique_id() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(ids)
    return weft.init(rank=dist.get_rank(), size=dist.get_world_size(), unique_id=ids[0])


def run(mode, options, answer):
    """Trains in a process of its own, so that the memory of other modes does not count."""
    torch.set_num_threads(1)
    rank, agent = int(os.environ["RANK"]), os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=rank == 0 and not agent)
    store = dist.PrefixStore(mode, store)
    dist.init_process_group(options.backend, store=store, rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
    with communicator() as comm:
        answer.send(trained(mode, options, comm))
    dist.destroy_process_group()


def main():
    options = parsed()
    rows = []
    for mode in MODES if options.mode == "all" else [options.mode]:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        child = context.Process(target=run, args=(mode, options, theirs))
        child.start()
        theirs.close()
        try:
            rows.append((mode, *ours.recv()))
        except EOFError:
            raise SystemExit(f"{mode} failed") from None
        child.join()
    if os.environ["RANK"] == "0":
        print("mode        loss    validation  ms a step  MiB")
        for mode, losses, validation, milliseconds, memory in rows:
            print(f"{mode:11} {losses[-1]:.4f}  {validation:.4f}      {milliseconds:9.2f}  {memory:.1f}")


if __name__ == "__main__":
    main()
