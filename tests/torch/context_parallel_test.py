"""Attention over a sequence that is spread over the ranks: torch's ring and Ulysses, each against one process."""

import unittest

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._context_parallel import _attention as ring
from torch.distributed.tensor.experimental._context_parallel import _HeadTailLoadBalancer
from torch.distributed.tensor.experimental._context_parallel._cp_custom_ops import flex_cp_allgather
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import ranks

aten = torch.ops.aten


class RingAttention(torch.autograd.Function):
    """torch's ring with the attention of CPUs. torch's dispatcher knows only those of CUDA devices."""

    @staticmethod
    def forward(ctx, query, key, value, causal):
        out, logsumexp = ring._templated_ring_attention(
            dist.group.WORLD, 2, aten._scaled_dot_product_flash_attention_for_cpu, query, key, value, causal
        )
        ctx.save_for_backward(query, key, value, out, logsumexp)
        ctx.causal = causal
        return out

    @staticmethod
    def backward(ctx, gradient):
        query, key, value, out, logsumexp = ctx.saved_tensors
        gradients = ring._templated_ring_attention_backward(
            dist.group.WORLD,
            2,
            aten._scaled_dot_product_flash_attention_for_cpu_backward,
            gradient.contiguous(),
            "grad_out",
            query,
            key,
            value,
            out,
            logsumexp,
            ctx.causal,
            dropout_p=0.0,
        )
        return *gradients, None


def inputs(size, part=4):
    """Query, key and value: batch, heads, sequence, width. `part`: of the sequence, on each rank."""
    source = torch.Generator().manual_seed(ranks.SEED)
    return [torch.randn(2, size, part * size, 8, generator=source) for _ in range(3)]


def alone(size, causal, part=4):
    """The output and the gradients of one process."""
    whole = [each.requires_grad_() for each in inputs(size, part)]
    out = functional.scaled_dot_product_attention(*whole, is_causal=causal)
    out.square().sum().backward()
    return [out.detach()] + [each.grad for each in whole]


def of_ring(rank, size):
    mesh = init_device_mesh("cpu", (size,))
    for rotation in ("allgather", "alltoall"):
        ring.set_rotate_method(rotation)
        for causal in (True, False):
            # The balance of load is for causal attention only.
            ring._cp_options.enable_load_balance = causal
            whole = inputs(size)
            with context_parallel(mesh, buffers=whole, buffer_seq_dims=[2] * 3):
                parts = [each.detach().clone().requires_grad_() for each in whole]
                assert parts[0].size(2) == 4
                out = RingAttention.apply(*parts, causal)
                out.square().sum().backward()
                spread = [out.detach()] + [each.grad for each in parts]
                balancer = ring._create_default_load_balancer(4 * size, size, torch.device("cpu"))
                merged = ring.context_parallel_unshard(mesh, spread, [2] * 4, balancer)
            for is_, wanted in zip(merged, alone(size, causal), strict=True):
                torch.testing.assert_close(is_, wanted)


class FlexAttention(torch.nn.Module):
    def forward(self, query, key, value, mask):
        return flex_attention(query, key, value, block_mask=mask)


def of_flex_attention(rank, size):
    """torch's own context parallel. On CPUs torch has no backward of this attention, so the exchange has a test for itself."""
    mesh = init_device_mesh("cpu", (size,))
    ring._compiled_create_block_mask = create_block_mask  # torch would compile it
    plan = ring._ContextParallel(seq_dim=2, attention_type=ring._ContextParallel.AttentionType.FLEX)
    attention = parallelize_module(FlexAttention(), mesh, plan)
    part = 2 * 128  # two of torch's blocks
    length = part * size
    mask = create_block_mask(lambda b, h, q, k: q >= k, 1, 1, length, length, device="cpu")
    for balancer in (None, _HeadTailLoadBalancer(length, size, torch.device("cpu"))):
        parts = ring._context_parallel_shard(mesh, [*inputs(size, part), mask], [2] * 4, balancer)
        (merged,) = ring.context_parallel_unshard(mesh, [attention(*parts)], [2], balancer)
        torch.testing.assert_close(merged, alone(size, True, part)[0])
    key, value = (each.chunk(size, dim=2)[rank].clone().requires_grad_() for each in inputs(size)[1:])
    gathered = flex_cp_allgather(key, value, 2, dist.group.WORLD.group_name)
    for is_, wanted in zip(gathered, inputs(size)[1:], strict=True):
        torch.testing.assert_close(is_, wanted)
    (gathered[0].square().sum() + gathered[1].sum()).backward()
    torch.testing.assert_close(key.grad, 2 * size * key.detach())
    torch.testing.assert_close(value.grad, torch.full_like(value, size))


def ulysses(rank, size):
    """Each rank has a part of the sequence; for the attention it has all of the sequence and some of the heads."""

    def exchange(x):
        return all_to_all_single_autograd(x.contiguous(), [1] * size, [1] * size, dist.group.WORLD)

    # The heads are the first dimension: one row a head.
    def heads_to_sequence(x):
        return torch.cat(exchange(x).chunk(size), dim=2)

    def sequence_to_heads(x):
        return exchange(torch.cat(x.chunk(size, dim=2)))

    for causal in (True, False):
        parts = [each.transpose(0, 1).chunk(size, dim=2)[rank].clone().requires_grad_() for each in inputs(size)]
        out = sequence_to_heads(
            functional.scaled_dot_product_attention(*map(heads_to_sequence, parts), is_causal=causal)
        )
        out.square().sum().backward()
        for is_, wanted in zip([out] + [each.grad for each in parts], alone(size, causal), strict=True):
            torch.testing.assert_close(is_, wanted.transpose(0, 1).chunk(size, dim=2)[rank])


def refusal(rank, size):
    """torch refuses its own entry on CPU tensors before a collective runs. When this fails, of_ring() can use it."""
    mesh = init_device_mesh("cpu", (size,))
    whole = inputs(size)
    with context_parallel(mesh, buffers=whole, buffer_seq_dims=[2] * 3):
        try:
            functional.scaled_dot_product_attention(*whole, is_causal=True)
        except NotImplementedError as error:
            assert "_scaled_dot_product_flash_attention_for_cpu" in str(error), error
        else:
            raise AssertionError("torch spreads the attention of CPUs: test it")


class ContextParallel(unittest.TestCase):
    """Each function runs with several numbers of ranks."""


def _add(function):
    def test(self):
        for size in (2,) if ranks.SMALL else (2, 3, 4):
            with self.subTest(ranks=size):
                ranks.run(size, function)

    setattr(ContextParallel, f"test_{function.__name__}", test)


for _each in (of_ring, of_flex_attention, ulysses, refusal):
    _add(_each)

if __name__ == "__main__":
    unittest.main()
