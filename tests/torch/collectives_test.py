"""Every collective of the backend against values that each rank computes by itself."""

import datetime
import threading
import unittest

import torch
import torch.distributed as dist

import ranks

INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SMALL_FLOATS = [torch.float8_e4m3fn, torch.float8_e5m2]
COMPLEX = [torch.complex64, torch.complex128]
MOVED = INTEGERS + FLOATS + SMALL_FLOATS + COMPLEX + [torch.bool, torch.float8_e4m3fnuz]
SHAPES = [(), (0,), (1,), (7,), (3, 5), (1000, 3)]
SIZES = [2, 3] if ranks.SMALL else [1, 2, 3, 4]
if ranks.SMALL and ranks.DEVICE != "cpu":
    SHAPES, SIZES = [(0,), (3, 5)], [2]


def values(shape, dtype, rank, salt=0):
    """Random elements of a rank, small enough that sums and products of integers and floats are exact."""
    source = torch.Generator().manual_seed(ranks.SEED * 1000 + rank * 10 + salt)
    numbers = torch.randint(1, 4, shape, generator=source, device="cpu")
    if dtype.is_complex:
        made = torch.complex(numbers.double(), numbers.flip(0).double() if numbers.dim() else numbers.double()).to(dtype)
    elif dtype == torch.bool:
        made = numbers > 2
    else:
        made = numbers.to(torch.float64).to(dtype) if dtype.is_floating_point else numbers.to(dtype)
    return made.to(ranks.DEVICE)


def strided(tensor):
    """The same elements in memory that is not contiguous."""
    if tensor.dim() == 0 or tensor.numel() == 0:
        return tensor.clone()
    wide = torch.zeros(*tensor.shape[:-1], tensor.shape[-1] * 2, dtype=torch.uint8, device=tensor.device)
    wide = wide.to(tensor.dtype)
    part = wide[..., ::2]
    part.copy_(tensor)
    return part


def same(actual, wanted):
    actual, wanted = actual.cpu(), wanted.cpu()
    if actual.dtype.itemsize == 1 and actual.dtype.is_floating_point:
        actual, wanted = actual.view(torch.uint8), wanted.view(torch.uint8)
    if actual.dtype in (torch.uint16, torch.uint32, torch.uint64):
        actual, wanted = actual.to(torch.int64), wanted.to(torch.int64)
    assert actual.shape == wanted.shape, (actual.shape, wanted.shape)
    assert torch.equal(actual, wanted), f"{actual.dtype}: {actual.flatten()[:8]} instead of {wanted.flatten()[:8]}"


def reduced(tensors, op):
    dtype = tensors[0].dtype
    wide = torch.complex128 if dtype.is_complex else torch.int64
    if dtype.is_floating_point:
        wide = torch.float64
    stack = torch.stack([tensor.cpu().to(wide) for tensor in tensors])
    if op == dist.ReduceOp.SUM:
        result = stack.sum(0)
    elif op == dist.ReduceOp.PRODUCT:
        result = stack.prod(0)
    elif op == dist.ReduceOp.MIN:
        result = stack.amin(0)
    elif op == dist.ReduceOp.MAX:
        result = stack.amax(0)
    elif op == dist.ReduceOp.AVG:
        result = stack.sum(0) / len(tensors) if wide != torch.int64 else stack.sum(0) // len(tensors)
    else:
        result = stack[0]
        for other in stack[1:]:
            if op == dist.ReduceOp.BAND:
                result = result & other
            elif op == dist.ReduceOp.BOR:
                result = result | other
            else:
                result = result ^ other
    return result != 0 if dtype == torch.bool else result.to(dtype)


def operations(dtype):
    every = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
    bitwise = [dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR]
    if dtype.is_complex or dtype == torch.float8_e4m3fn:  # products have no exact value in 8 bits
        return [dist.ReduceOp.SUM]
    if dtype == torch.bool:
        return every + bitwise
    return every + [dist.ReduceOp.AVG] + (bitwise if not dtype.is_floating_point else [])


def close(actual, wanted, op):
    """An average of small floats may round; everything else is exact."""
    if op == dist.ReduceOp.AVG and actual.dtype.is_floating_point:
        torch.testing.assert_close(actual.cpu().double(), wanted.cpu().double(), rtol=0.01, atol=0.01)
    else:
        same(actual, wanted)


def reductions(rank, size):
    for dtype in INTEGERS + FLOATS + COMPLEX + [torch.bool, torch.float8_e4m3fn]:
        for op in operations(dtype):
            for shape in SHAPES:
                inputs = [values(shape, dtype, each) for each in range(size)]
                wanted = reduced(inputs, op)
                for make in (torch.clone, strided):
                    x = make(inputs[rank])
                    dist.all_reduce(x, op)
                    close(x, wanted, op)
                    x = make(inputs[rank])
                    dist.all_reduce(x, op, async_op=True).wait()
                    close(x, wanted, op)
                    x = make(inputs[rank])
                    dist.reduce(x, size - 1, op)
                    close(x, wanted if rank == size - 1 else inputs[rank], op)
                # Scatter: each rank's part has the shape.
                parts = [[values(shape, dtype, each, part) for part in range(size)] for each in range(size)]
                wanted = reduced([each[rank] for each in parts], op)
                for make in (torch.clone, strided):
                    x = make(torch.zeros(shape).to(dtype))
                    dist.reduce_scatter(x, [make(part) for part in parts[rank]], op)
                    close(x, wanted, op)
                x = torch.zeros(wanted.numel()).to(dtype)
                dist.reduce_scatter_tensor(x, torch.cat([part.flatten() for part in parts[rank]]), op)
                close(x, wanted.flatten(), op)


def uneven(rank, size):
    for dtype in (torch.float32, torch.int16, torch.bool, torch.complex64):
        shapes = [(each + 1, 2) for each in range(size)]
        outputs = [torch.zeros(shape).to(dtype) for shape in shapes]
        dist.all_gather(outputs, values(shapes[rank], dtype, rank))
        for each in range(size):
            same(outputs[each], values(shapes[each], dtype, each))
        parts = [[values(shapes[part], dtype, each, part) for part in range(size)] for each in range(size)]
        x = torch.zeros(shapes[rank]).to(dtype)
        dist.reduce_scatter(x, parts[rank])
        same(x, reduced([each[rank] for each in parts], dist.ReduceOp.SUM))


def premultiplied(rank, size):
    for dtype in FLOATS + COMPLEX:
        for factor in (0.5, torch.tensor([0.5], dtype=dtype if not dtype.is_complex else torch.float64)):
            op = torch.distributed._make_nccl_premul_sum(factor)
            x = values((7,), dtype, rank)
            dist.all_reduce(x, op)
            wanted = reduced([values((7,), dtype, each) for each in range(size)], dist.ReduceOp.SUM)
            same(x, (wanted.to(torch.complex128 if dtype.is_complex else torch.float64) / 2).to(dtype))


def moves(rank, size):
    for dtype in MOVED:
        for shape in SHAPES:
            for make in (torch.clone, strided):
                if dtype == torch.float8_e4m3fnuz and make is strided:
                    continue
                for root in range(size):
                    x = make(values(shape, dtype, rank))
                    dist.broadcast(x, root)
                    same(x, values(shape, dtype, root))
                    lists = [make(values(shape, dtype, 0, 9)) for _ in range(size)] if rank == root else None
                    dist.gather(make(values(shape, dtype, rank)), lists, root)
                    if rank == root:
                        for each in range(size):
                            same(lists[each], values(shape, dtype, each))
                    sent = [make(values(shape, dtype, root, part)) for part in range(size)] if rank == root else None
                    x = make(values(shape, dtype, 0, 9))
                    dist.scatter(x, sent, root)
                    same(x, values(shape, dtype, root, rank))
                outputs = [make(values(shape, dtype, 0, 9)) for _ in range(size)]
                dist.all_gather(outputs, make(values(shape, dtype, rank)))
                for each in range(size):
                    same(outputs[each], values(shape, dtype, each))
                outputs = [make(values(shape, dtype, 0, 9)) for _ in range(size)]
                dist.all_to_all(outputs, [make(values(shape, dtype, rank, part)) for part in range(size)])
                for each in range(size):
                    same(outputs[each], values(shape, dtype, each, rank))
            x = values((size * 6,), dtype, 0, 9)
            dist.all_gather_into_tensor(x, values((6,), dtype, rank))
            same(x, torch.cat([values((6,), dtype, each).view(torch.uint8) for each in range(size)]).view(dtype))


def all_to_all_single(rank, size):
    # Rank r sends (r + q) % 3 rows to rank q.
    sent = [(rank + each) % 3 for each in range(size)]
    source = values((sum(sent), 5), torch.float32, rank)
    output = torch.zeros(sum(sent), 5)
    dist.all_to_all_single(output, source, sent, sent)
    for each in range(size):
        theirs = [(each + other) % 3 for other in range(size)]
        begin = sum(theirs[:rank])
        part = values((sum(theirs), 5), torch.float32, each)[begin : begin + theirs[rank]]
        same(output[sum(sent[:each]) : sum(sent[: each + 1])], part)
    output = torch.zeros(size * 2, 3)
    dist.all_to_all_single(output, values((size * 2, 3), torch.float32, rank))
    for each in range(size):
        same(output[each * 2 : each * 2 + 2], values((size * 2, 3), torch.float32, each)[rank * 2 : rank * 2 + 2])


def coalesced(rank, size):
    group = dist.group.WORLD
    tensors = [values((count,), torch.float32, rank, count) for count in (1, 0, 100, 5)]
    dist.all_reduce_coalesced(tensors)
    for tensor, count in zip(tensors, (1, 0, 100, 5)):
        same(tensor, reduced([values((count,), torch.float32, each, count) for each in range(size)], dist.ReduceOp.SUM))
    x, y = values((9,), torch.float32, rank), values((9,), torch.int64, rank)
    with dist._coalescing_manager(group, async_ops=True) as manager:
        dist.all_reduce(x)
        dist.all_reduce(y)
    manager.wait()
    same(x, reduced([values((9,), torch.float32, each) for each in range(size)], dist.ReduceOp.SUM))
    same(y, reduced([values((9,), torch.int64, each) for each in range(size)], dist.ReduceOp.SUM))
    outputs = [torch.zeros(size * 4) for _ in range(3)]
    with dist._coalescing_manager(group):
        for salt, output in enumerate(outputs):
            dist.all_gather_into_tensor(output, values((4,), torch.float32, rank, salt))
    for salt, output in enumerate(outputs):
        same(output, torch.cat([values((4,), torch.float32, each, salt) for each in range(size)]))


def objects(rank, size):
    everything = [None] * size
    dist.all_gather_object(everything, {"rank": rank, "list": list(range(rank))})
    assert everything == [{"rank": each, "list": list(range(each))} for each in range(size)]
    shared = [rank, "text" * rank]
    dist.broadcast_object_list(shared, size - 1)
    assert shared == [size - 1, "text" * (size - 1)]
    received = [None]
    dist.scatter_object_list(received, [f"for {each}" for each in range(size)] if rank == 0 else None, 0)
    assert received == [f"for {rank}"]
    gathered = [None] * size if rank == 0 else None
    dist.gather_object(rank * 2, gathered, 0)
    assert gathered == ([each * 2 for each in range(size)] if rank == 0 else None)


def futures(rank, size):
    x = torch.full((1000,), float(rank))
    doubled = dist.all_reduce(x, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    assert doubled.wait()[0].item() == size * (size - 1)

    # A callback may wait for a later collective.
    def nested(done):
        y = done.value()[0].clone()
        dist.all_reduce(y, async_op=True).get_future().wait()
        return y

    y = torch.ones(3)
    assert dist.all_reduce(y, async_op=True).get_future().then(nested).wait()[0].item() == size * size
    works = [dist.all_reduce(torch.ones(each), async_op=True) for each in range(1, 50)]
    for work in reversed(works):
        work.wait()
        ranks.synchronize()
        assert work.is_completed() and work.is_success()


def subgroups(rank, size):
    for chosen in ([0], [0, size - 1], list(range(size))):
        chosen = sorted(set(chosen))
        group = dist.new_group(chosen)
        if rank in chosen:
            x = torch.ones(4)
            dist.all_reduce(x, group=group)
            assert x[0].item() == len(chosen)
            dist.barrier(group)
            if torch.__version__ >= (2, 15):  # an older one refuses it for all backends but Gloo
                dist.monitored_barrier(group)
    before = dist.group.WORLD._get_backend(torch.device("cpu"))._get_sequence_number_for_group()
    dist.barrier()
    assert dist.group.WORLD._get_backend(torch.device("cpu"))._get_sequence_number_for_group() == before + 1


def monitored_barrier(rank, size):
    """It names the late ranks, also in a group made again on the same store, after a failure of the one before."""
    keys = dist.distributed_c10d._get_default_store()
    short = datetime.timedelta(milliseconds=300)
    for _ in range(2):
        group = dist.group.WORLD._get_backend(torch.device("cpu"))
        for _ in range(3):
            group.monitored_barrier()
        dist.barrier()
        if rank == 0 and size > 1:
            ranks.fails(lambda: group.monitored_barrier(short), dist.DistBackendError, "Rank 1 failed to pass")
        dist.barrier()
        if rank != 0:
            ranks.fails(lambda: group.monitored_barrier(short), dist.DistBackendError, "Rank 1 failed to pass")
        dist.destroy_process_group()
        dist.init_process_group(ranks.names("weft"), store=keys, rank=rank, world_size=size)


def modes(rank, size):
    """The modes of the calling thread hold in the thread that executes the call, too."""
    with torch.inference_mode():
        outputs = [torch.zeros(3) for _ in range(size)]
        work = dist.all_gather(outputs, torch.full((3,), float(rank)), async_op=True)
        work.get_future()
        while not work.is_completed():  # the group's thread executes it
            pass
        assert [output[0].item() for output in outputs] == list(range(size))
    leaf = torch.full((2, 3), float(rank)).t().requires_grad_()
    with torch.no_grad():
        dist.broadcast(leaf, size - 1, async_op=True).wait()
    assert leaf.unique().tolist() == [float(size - 1)]


def in_one_thread_of_two(rank, size):
    """A batch of one thread takes no calls of another thread."""
    group, device = dist.new_group(list(range(size))), torch.device("cpu")
    x, y = torch.ones(3), torch.ones(3)
    group._start_coalescing(device)
    group.allreduce([x])
    other = threading.Thread(target=lambda: group.allreduce([y]).wait())
    other.start()
    other.join()
    assert y.tolist() == [float(size)] * 3, "the other thread's call was not executed"
    group._end_coalescing(device).wait()
    assert x.tolist() == [float(size)] * 3


def again(rank, size):
    """A group of the same store after the first one, and parts of a group."""
    keys = dist.distributed_c10d._get_default_store()
    for _ in range(3):
        dist.destroy_process_group()
        dist.init_process_group(ranks.names("weft"), store=keys, rank=rank, world_size=size)
        x = torch.ones(3)
        dist.all_reduce(x)
        assert x.tolist() == [float(size)] * 3
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    for _ in range(2):
        if rank < size - 1:
            part = backend.shrink([size - 1])
            assert part.rank() == rank and part.size() == size - 1
            part.allreduce([x]).wait()
            part.shutdown()
        dist.barrier()
    store = dist.PrefixStore("part", keys)
    if rank > 0 and size > 1 and hasattr(backend, "split"):
        part = backend.split(store, list(range(1, size)), None)
        assert part.rank() == rank - 1 and part.size() == size - 1
        part.allreduce([x]).wait()
        part.shutdown()
    tensor = backend.allocate_tensor(5, dtype=torch.float32, device=torch.device("cpu"))
    tensor.fill_(1)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [float(size)] * 5


class Collectives(unittest.TestCase):
    """Each function runs with every number of ranks."""


def _add(function):
    def test(self):
        for size in SIZES:
            with self.subTest(ranks=size):
                ranks.run(size, function)

    setattr(Collectives, f"test_{function.__name__}", test)


for _each in (
    reductions,
    uneven,
    premultiplied,
    moves,
    all_to_all_single,
    coalesced,
    objects,
    futures,
    subgroups,
    monitored_barrier,
    modes,
    in_one_thread_of_two,
    again,
):
    _add(_each)

if __name__ == "__main__":
    unittest.main()
