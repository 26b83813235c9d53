"""A process group whose members change: reconfigure() with handles that the ranks exchange."""

import os
import tempfile
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist

import ranks
from ranks import fails


def join(listed, uuid, timeout=None):
    options = torch._C._distributed_c10d.ReconfigureOptions()
    options.uuid = uuid
    options.handles = listed
    options.timeout = timeout
    dist.group.WORLD.reconfigure(options).wait()


def works(size):
    group = dist.group.WORLD
    x = torch.ones(4)
    options = dist.AllreduceOptions()
    options.asyncOp = True
    group.allreduce([x], options).wait()
    assert x.tolist() == [float(size)] * 4
    assert group.size() == size
    peer = size - 1 - group.rank()
    if peer != group.rank():
        works = [group.send([torch.full((2,), float(group.rank()))], peer, 0), group.recv([x[:2]], peer, 0)]
        for work in works:
            work.wait()
        assert x.tolist()[:2] == [float(peer)] * 2


def main(rank, size, folder):
    store = dist.FileStore(os.path.join(folder, "store"), size)
    dist.init_process_group("weft", store=store, rank=rank, world_size=size, enable_reconfigure=True)
    group = dist.group.WORLD
    assert group.supports_reconfigure
    options = dist.AllreduceOptions()
    fails(lambda: group.allreduce([torch.ones(1)], options), RuntimeError, "[usage.not-ready]")

    def listed(step, members):
        store.set(f"handle {step} {rank}", group.get_reconfigure_handle())
        return [store.get(f"handle {step} {each}").decode() for each in members]

    everyone = list(range(size))
    first = listed("first", everyone)
    fails(lambda: join(first[:rank] + first[rank + 1 :], 1), ValueError, "[argument.unique-id]")
    fails(lambda: join(["text"] + first[1:] + [first[0]], 1), ValueError, "[argument.unique-id]")
    fails(lambda: join(first + first[:1], 1), ValueError, "[argument.rank]")
    join(first, 1)
    assert group.rank() == rank
    works(size)
    # In another order, and as a set.
    join(list(reversed(listed("second", everyone))), 2)
    assert group.rank() == size - 1 - rank
    works(size)
    fails(lambda: join(set(listed("used uuid", everyone)), 2), ValueError, "[argument.value]")
    join(set(listed("third", everyone)), 3)
    works(size)
    # A rank dies in a collective; the others go on without it.
    if rank == size - 1:
        os._exit(0)
    fails(lambda: group.allreduce([torch.ones(1)], options).wait(), dist.DistBackendError, "rank")
    rest = everyone[:-1]
    join(listed("fourth", rest), 4, timedelta(seconds=60))
    works(size - 1)
    # A member does not come: an error, and the next try works.
    if rank == 0:
        missing = listed("fifth", rest)
        fails(lambda: join(missing, 5, timedelta(milliseconds=500)), dist.DistBackendError, "[")
        fails(lambda: group.allreduce([torch.ones(1)], options), RuntimeError, "[usage.not-ready]")
        store.set("gave up", "1")
    else:
        listed("fifth", rest)
        store.wait(["gave up"], timedelta(seconds=60))
        group._get_backend(torch.device("cpu")).abort()
    join(listed("sixth", rest), 6)
    works(size - 1)
    dist.destroy_process_group()
    fails(lambda: join([], 7), Exception, "")


@unittest.skipUnless(hasattr(dist.ProcessGroup, "reconfigure"), "this torch does not change members")
class Reconfigure(unittest.TestCase):
    def test_members(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks.run(3, main, folder, backend=None, dies=[2])


if __name__ == "__main__":
    unittest.main()
