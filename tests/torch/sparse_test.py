"""All-reduce of sparse tensors, and training with sparse gradients."""

import copy
import unittest

import torch
import torch.distributed as dist
import torch.nn as nn

import ranks


def sparse(rank, shape, elements, dtype=torch.float64, sparse_dims=1):
    source = torch.Generator().manual_seed(ranks.SEED * 1000 + rank)
    indices = torch.stack([torch.randint(0, size, (elements,), generator=source) for size in shape[:sparse_dims]])
    values = torch.randint(-9, 9, (elements, *shape[sparse_dims:]), generator=source).to(dtype)
    return torch.sparse_coo_tensor(indices, values, shape)


def sums(rank, size):
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.int64):
        for shape, dims in (((7,), 1), ((5, 3), 1), ((5, 3), 2), ((6, 2, 4), 2)):
            for elements in (lambda each: 4 + each, lambda each: 0, lambda each: 9 if each == 0 else 0):
                inputs = [sparse(each, shape, elements(each), dtype, dims) for each in range(size)]
                expected = sum(each.to_dense() for each in inputs)
                for is_async in (False, True):
                    x = inputs[rank].clone()
                    work = dist.all_reduce(x, async_op=is_async)
                    if work is not None:
                        work.wait()
                    assert x.is_sparse and torch.equal(x.to_dense(), expected)


def refusals(rank, size):
    for call, kind, text in (
        (lambda: dist.all_reduce(sparse(0, (5,), 2), dist.ReduceOp.MAX), ValueError, "[argument.reduction]"),
        (lambda: dist.all_reduce(torch.ones(3, 3).to_sparse_csr()), Exception, ""),
        (lambda: dist.all_reduce(sparse(0, (5 + rank,), 2)), dist.DistBackendError, "[mismatch.datatype]"),
    ):
        try:
            call()
        except kind as error:
            assert text in str(error), error
        else:
            raise AssertionError("the call passed")
    # The group goes on: all ranks found the same.
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == size


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 4, sparse=True)
        self.last = nn.Linear(4, 1)

    def forward(self, words):
        return self.last(self.table(words))


def training(rank, size):
    """DDP with a sparse embedding takes the steps of one process that sees all words."""
    torch.manual_seed(ranks.SEED)
    alone = Words().double()
    model = nn.parallel.DistributedDataParallel(copy.deepcopy(alone))
    optimizers = [torch.optim.SGD(each.parameters(), 0.1) for each in (model, alone)]
    for step in range(4):
        words = torch.randint(0, 20, (6 * size,), generator=torch.Generator().manual_seed(ranks.SEED + step))
        for optimizer in optimizers:
            optimizer.zero_grad()
        model(words[rank * 6 : (rank + 1) * 6]).square().mean().backward()
        alone(words).square().mean().backward()
        assert model.module.table.weight.grad.is_sparse
        for optimizer in optimizers:
            optimizer.step()
        for mine, other in zip(model.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(mine, other)


class Sparse(unittest.TestCase):
    def test_sums(self):
        for size in (1, 2, 3):
            ranks.run(size, sums)

    def test_refusals(self):
        ranks.run(2, refusals)

    def test_training(self):
        ranks.run(2, training)


if __name__ == "__main__":
    unittest.main()
