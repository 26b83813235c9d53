"""Attention over a sequence that is spread over the ranks: torch's ring and Ulysses, each against one process."""

import unittest

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._context_parallel import _attention as ring

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


def inputs(size):
    """Query, key and value: batch, heads, sequence, width."""
    source = torch.Generator().manual_seed(ranks.SEED)
    return [torch.randn(2, size, 4 * size, 8, generator=source) for _ in range(3)]


def alone(size, causal):
    """The output and the gradients of one process."""
    whole = [each.requires_grad_() for each in inputs(size)]
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


for _each in (of_ring, ulysses, refusal):
    _add(_each)

if __name__ == "__main__":
    unittest.main()
