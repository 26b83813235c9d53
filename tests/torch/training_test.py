"""torch's own training classes on Weft: the losses and parameters equal those of one process that sees all data."""

import copy
import functools
import os
import tempfile
import unittest

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

import ranks

STEPS = 4
BATCH = 12  # rows of all ranks together: divisible by 2, 3 and 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 24)
        self.norm = nn.LayerNorm(24)
        self.second = nn.Linear(24, 24)
        self.last = nn.Linear(24, 3)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.seen += 1
        return self.last(torch.relu(self.second(self.norm(torch.relu(self.first(x))))))


def make(kind=Net):
    torch.manual_seed(ranks.SEED)
    with torch.device("cpu"):
        made = kind().double()
    return made.to(ranks.here())


def data(step):
    source = torch.Generator().manual_seed(ranks.SEED * 100 + step)
    return tuple(
        torch.randn(BATCH, columns, generator=source, dtype=torch.float64, device="cpu").to(ranks.here())
        for columns in (8, 3)
    )


def mine(tensor, rank, size):
    return tensor.chunk(size)[rank]


def loss_of(model, x, y):
    return nn.functional.mse_loss(model(x), y)


def alone(optimizer=functools.partial(torch.optim.SGD, lr=0.1), clip=None, kind=Net):
    """The parameters after the steps of one process, and its losses."""
    model = make(kind)
    optim = optimizer(model.parameters())
    losses = []
    for step in range(STEPS):
        x, y = data(step)
        loss = loss_of(model, x, y)
        optim.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optim.step()
        losses.append(loss.item())
    return losses, {name: each.detach().clone() for name, each in model.named_parameters()}


def steps(model, optim, rank, size, clip=None):
    """The same steps, each rank with its part. Returns the mean losses."""
    losses = []
    for step in range(STEPS):
        x, y = (mine(each, rank, size) for each in data(step))
        loss = loss_of(model, x, y)
        optim.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optim.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses.append(mean.item())
    return losses


def check(losses, parameters, wanted, tolerance=1e-9):
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(wanted[0]), rtol=tolerance, atol=tolerance)
    for name, value in parameters.items():
        torch.testing.assert_close(value.double(), wanted[1][name.removeprefix("module.")], rtol=tolerance, atol=tolerance)


def ddp(rank, size):
    for settings in ({}, {"static_graph": True}, {"find_unused_parameters": True}, {"gradient_as_bucket_view": True},
                     {"bucket_cap_mb": 0.001}):
        model = DistributedDataParallel(make(), **settings)
        losses = steps(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, size)
        check(losses, dict(model.named_parameters()), alone())


def ddp_hooks(rank, size):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, post_localSGD_hook

    process_group = dist.group.WORLD
    power = powerSGD_hook.PowerSGDState(process_group, matrix_approximation_rank=24, start_powerSGD_iter=2)
    local = post_localSGD_hook.PostLocalSGDState(process_group, dist.new_subgroups(size)[0], start_localSGD_iter=100)
    for hook, state, tolerance in (
        (default_hooks.allreduce_hook, process_group, 1e-9),
        (default_hooks.fp16_compress_hook, process_group, 0.01),
        (default_hooks.bf16_compress_hook, process_group, 0.05),
        (powerSGD_hook.powerSGD_hook, power, 0.01),
        (post_localSGD_hook.post_localSGD_hook, local, 1e-9),
    ):
        model = DistributedDataParallel(make())
        model.register_comm_hook(state, hook)
        losses = steps(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, size)
        check(losses, dict(model.named_parameters()), alone(), tolerance)


def ddp_no_sync(rank, size):
    """Two halves of each part, the first without synchronisation."""
    model = DistributedDataParallel(make())
    optim = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        x, y = (mine(each, rank, size) for each in data(step))
        cut = len(x) // 2
        with model.no_sync():
            (loss_of(model, x[:cut], y[:cut]) * cut / len(x)).backward()
        (loss_of(model, x[cut:], y[cut:]) * (len(x) - cut) / len(x)).backward()
        optim.step()
        optim.zero_grad()
    check([], dict(model.named_parameters()), ([], alone()[1]))


def ddp_join(rank, size):
    """Rank r has r more steps than rank 0; the others shadow its collectives."""
    from torch.distributed.algorithms.join import Join

    model = DistributedDataParallel(make())
    optim = torch.optim.SGD(model.parameters(), lr=0.1)
    with Join([model]):
        for step in range(2 + rank):
            x, y = data(step)
            optim.zero_grad()
            loss_of(model, x, y).backward()
            optim.step()
    weights = torch.cat([each.detach().flatten() for each in model.parameters()])
    everyone = [torch.zeros_like(weights) for _ in range(size)]
    dist.all_gather(everyone, weights)
    for other in everyone:
        assert torch.equal(other, weights)


def fsdp2(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    def shard(model, **settings):
        for part in (model.first, model.second, model.last):
            fully_shard(part, **settings)
        return fully_shard(model, **settings)

    def whole(model):
        return {name: each.full_tensor() for name, each in model.named_parameters()}

    for clip in (None, 0.05):
        model = shard(make())
        losses = steps(model, torch.optim.Adam(model.parameters(), lr=0.01), rank, size, clip)
        check(losses, whole(model), alone(functools.partial(torch.optim.Adam, lr=0.01), clip))
    model = shard(make().float(), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    optim = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        x, y = (mine(each, rank, size).float() for each in data(step))
        optim.zero_grad()
        loss_of(model, x, y.bfloat16()).backward()
        optim.step()
    check([], whole(model), ([], alone()[1]), 0.05)
    if size == 4:
        mesh = init_device_mesh(ranks.DEVICE, (2, 2), mesh_dim_names=("replicate", "shard"))
        model = shard(make(), mesh=mesh)
        losses = steps(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, size)
        check(losses, whole(model), alone())


def fsdp1(rank, size):
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD):
        model = FullyShardedDataParallel(make(), device_id=ranks.here(), sharding_strategy=strategy)
        losses = steps(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, size)
        with FullyShardedDataParallel.summon_full_params(model):
            parameters = {
                name.replace("_fsdp_wrapped_module.", ""): each.detach().clone()
                for name, each in model.named_parameters()
            }
        check(losses, parameters, alone())


def zero(rank, size):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    for overlap in (False, True):
        model = DistributedDataParallel(make())
        optim = ZeroRedundancyOptimizer(
            model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01, parameters_as_bucket_view=overlap
        )
        losses = steps(model, optim, rank, size)
        check(losses, dict(model.named_parameters()), alone(functools.partial(torch.optim.Adam, lr=0.01)))


def tensor_parallel(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        loss_parallel,
        parallelize_module,
    )

    mesh = init_device_mesh(ranks.DEVICE, (size,))
    whole = torch.arange(24.0).view(8, 3)
    for placement in (Shard(0), Shard(1), Replicate()):
        spread = distribute_tensor(whole, mesh, [placement])
        assert torch.equal(spread.full_tensor(), whole)
        assert torch.equal(spread.redistribute(mesh, [Shard(0)]).full_tensor(), whole)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(8)
            self.up = nn.Linear(8, 24)
            self.down = nn.Linear(24, 8)
            self.head = nn.Linear(8, 12)

        def forward(self, x):
            return self.head(self.down(torch.relu(self.up(self.norm(x)))))

    x, _ = data(0)
    target = torch.arange(BATCH) % 12
    alone_model = make(Block)
    wanted = nn.functional.cross_entropy(alone_model(x), target)
    wanted.backward()
    plans = {
        "sequence": {
            "norm": SequenceParallel(sequence_dim=0),
            "up": ColwiseParallel(input_layouts=Shard(0)),
            "down": RowwiseParallel(output_layouts=Shard(0)),
            "head": ColwiseParallel(input_layouts=Shard(0), output_layouts=Shard(-1), use_local_output=False),
        },
        "tensor": {
            "up": ColwiseParallel(),
            "down": RowwiseParallel(),
            "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
        },
    }
    for name, plan in plans.items():
        part = mine(x, rank, size) if name == "sequence" else x
        model = parallelize_module(make(Block), mesh, plan)
        with loss_parallel():
            loss = nn.functional.cross_entropy(model(part), target)
            loss.backward()
        loss = loss.full_tensor() if isinstance(loss, DTensor) else loss
        torch.testing.assert_close(loss, wanted)
        for (name, each), other in zip(model.named_parameters(), alone_model.parameters()):
            grad = each.grad.full_tensor() if isinstance(each.grad, DTensor) else each.grad
            torch.testing.assert_close(grad, other.grad, msg=lambda text, name=name: f"{name}: {text}")


def pipelining(rank, size):
    from torch.distributed.pipelining import (
        PipelineStage,
        Schedule1F1B,
        ScheduleGPipe,
        ScheduleInterleaved1F1B,
        ScheduleInterleavedZeroBubble,
    )

    def layers(count):
        torch.manual_seed(ranks.SEED)
        with torch.device("cpu"):
            made = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()).double() for _ in range(count)]
        return [each.to(ranks.here()) for each in made]

    x = data(0)[0]
    source = torch.Generator().manual_seed(5)
    y = torch.randn(BATCH, 8, generator=source, dtype=torch.float64, device="cpu").to(ranks.here())
    micro_batches = size * 2 if BATCH % (size * 2) == 0 else size
    for schedule, per_rank in (
        (ScheduleGPipe, 1),
        (Schedule1F1B, 1),
        (ScheduleInterleaved1F1B, 2),
        (ScheduleInterleavedZeroBubble, 2),
    ):
        count = size * per_rank
        model = nn.Sequential(*layers(count))
        total = 0.0
        for part, wanted in zip(x.chunk(micro_batches), y.chunk(micro_batches)):
            loss = nn.functional.mse_loss(model(part), wanted) / micro_batches
            loss.backward()
            total += loss.item()
        own = layers(count)
        stages = [
            PipelineStage(own[index], index, count, ranks.here()) for index in range(rank, count, size)
        ]
        runner = schedule(
            stages[0] if per_rank == 1 else stages, micro_batches, loss_fn=nn.functional.mse_loss
        )
        losses = []
        last = rank == size - 1
        arguments = (x,) if rank == 0 else ()
        runner.step(*arguments, target=y if last else None, losses=losses if last else None)
        if last:
            torch.testing.assert_close(torch.stack(losses).mean().item(), total)
        for index in range(rank, count, size):
            for each, other in zip(own[index].parameters(), model[index].parameters()):
                torch.testing.assert_close(each.grad, other.grad)


def batch_norm(rank, size):
    """The statistics of all ranks. torch's SyncBatchNorm refuses CPU tensors, so this is its formula in collectives."""
    x, _ = data(0)
    part = mine(x, rank, size)
    sums = torch.stack([part.sum(0), (part * part).sum(0)])
    import torch.distributed.nn.functional as functional

    total = functional.all_reduce(sums)
    mean = total[0] / BATCH
    variance = total[1] / BATCH - mean * mean
    wanted = nn.functional.batch_norm(x, None, None, training=True)
    torch.testing.assert_close((part - mean) / torch.sqrt(variance + 1e-5), mine(wanted, rank, size))


def checkpoint(rank, size, folder, saves):
    """Saved by one number of ranks, loaded by another."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(make())
    optim = torch.optim.SGD(model.parameters(), lr=0.1)
    if saves:
        steps(model, optim, rank, size)
        dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=folder)
        return None
    state = {"model": get_model_state_dict(model)}
    dcp.load(state, checkpoint_id=folder)
    set_model_state_dict(model, state["model"])
    check([], {name: each.full_tensor() for name, each in model.named_parameters()}, ([], alone()[1]))
    return None


def functional_collectives(rank, size):
    import torch.distributed._functional_collectives as funcol

    group = dist.group.WORLD
    x = torch.arange(12.0) + rank

    def program(x):
        total = funcol.all_reduce(x, "sum", group)
        parts = funcol.reduce_scatter_tensor(torch.cat([total] * size), "avg", 0, group)
        return funcol.all_gather_tensor(parts, 0, group) + 1

    total = sum(torch.arange(12.0) + each for each in range(size))
    wanted = torch.cat([total] * size) + 1
    torch.testing.assert_close(program(x), wanted)
    compiled = torch.compile(program, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), wanted)


class Training(unittest.TestCase):
    """Each function runs with several numbers of ranks."""

    def test_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks.run(3, checkpoint, folder, True)
            ranks.run(2, checkpoint, folder, False)

    def test_debug_detail(self):
        """torch checks each call of a plugin's group by a group of its own."""
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        dist.set_debug_level_from_env()
        try:
            ranks.run(2, ddp)
        finally:
            del os.environ["TORCH_DISTRIBUTED_DEBUG"]
            dist.set_debug_level_from_env()


def _add(function, sizes):
    def test(self):
        for size in sizes:
            with self.subTest(ranks=size):
                ranks.run(size, function)

    setattr(Training, f"test_{function.__name__}", test)


_few = (2,) if ranks.SMALL else (2, 3, 4)
for _each in (ddp, ddp_hooks, ddp_no_sync, ddp_join, fsdp1, zero, batch_norm, pipelining, functional_collectives):
    _add(_each, _few)
_add(fsdp2, (2, 4) if ranks.SMALL else (2, 3, 4))
_add(tensor_parallel, (2,) if ranks.SMALL else (2, 4))

if __name__ == "__main__":
    unittest.main()
