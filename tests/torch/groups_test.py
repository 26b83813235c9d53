"""Process groups made of others: split_group, new_group in all its forms, merge_remote_group, device meshes."""

import inspect
import os
import tempfile
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import ranks

CPU = torch.device("cpu", 0)
# torch 2.11 splits groups of CUDA devices only, and binds groups to no other device.
SPLITS_ON_CPU = "backend" in inspect.signature(dist.split_group).parameters


def check(group, members):
    """The group's ranks are in this order, and all kinds of calls work in it."""
    rank, size = dist.get_rank(group), len(members)
    assert dist.get_process_group_ranks(group) == members
    assert (members[rank], dist.get_world_size(group)) == (dist.get_rank(), size)
    x = torch.tensor([float(dist.get_rank())])
    total = x.clone()
    dist.all_reduce(total, group=group)
    assert total.item() == sum(members)
    everyone = [torch.zeros(1) for _ in members]
    dist.all_gather(everyone, x, group=group)
    assert [each.item() for each in everyone] == members
    if size > 1:
        received = torch.zeros(1)
        work = dist.isend(x, group=group, group_dst=(rank + 1) % size)
        dist.recv(received, group=group, group_src=(rank - 1) % size)
        work.wait()
        assert received.item() == members[rank - 1]
    dist.barrier(group)


def check_world(size):
    check(dist.group.WORLD, list(range(size)))


def backend(group):
    return group._get_backend(torch.device("cpu"))


def splits(rank, size):
    half = size // 2
    halves = [list(range(half)), list(range(half, size))]
    part = dist.split_group(split_ranks=halves)
    check(part, halves[rank >= half])
    # The order of the list is the order of the ranks. Ranks in no list get no group.
    turned = dist.split_group(split_ranks=[[1, 0]], timeout=timedelta(seconds=7), group_desc="turned")
    if rank < 2:
        check(turned, [1, 0])
        assert turned.group_desc == "turned"
        assert backend(turned).options._timeout == timedelta(seconds=7)
    else:
        assert turned is dist.GroupMember.NON_GROUP_MEMBER
    # A split of a split; equal lists twice.
    for _ in range(2):
        single = dist.split_group(part, [[each] for each in range(dist.get_world_size(part))])
        check(single, [rank])
    by_name = dist.split_group(split_ranks=[list(range(size))], backend="weft")
    check(by_name, list(range(size)))
    dist.destroy_process_group(part)
    check(by_name, list(range(size)))
    check_world(size)


def keeps_options(rank, size):
    part = dist.split_group(split_ranks=[list(range(size))])
    assert backend(part).options.algo == "ring"
    import weft.torch

    part = dist.split_group(split_ranks=[list(range(size))], pg_options=weft.torch.Options(deterministic=True))
    assert (backend(part).options.algo, backend(part).options.deterministic) == ("", True)
    check(part, list(range(size)))


def new_groups(rank, size):
    last = list(range(1, size))
    group = dist.new_group(last)
    if rank in last:
        check(group, last)
    else:
        assert group is dist.GroupMember.NON_GROUP_MEMBER
    own, groups = dist.new_subgroups(1)
    check(own, [rank])
    assert len(groups) == size
    turned = list(range(size))[::-1]
    own, _ = dist.new_subgroups_by_enumeration([[each] for each in turned])
    check(own, [rank])
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("rows", "columns"))
    check(mesh.get_group("columns"), mesh["columns"].mesh.tolist())
    check(mesh.get_group("rows"), mesh["rows"].mesh.tolist())
    # Members alone make the call. torch's names of later groups differ between ranks then.
    if rank in last:
        check(dist.new_group(last, use_local_synchronization=True), last)
    check_world(size)


def merges(rank, size):
    """Two groups become one. Ranks of the new group are in order of their calls."""
    half = size // 2
    own = list(range(half)) if rank < half else list(range(half, size))
    part = dist.new_group(own, use_local_synchronization=True)
    store = dist.PrefixStore("merge", dist.distributed_c10d._get_default_store())
    whole = part.merge_remote_group(store, size, timedelta(seconds=60), "merged", "all of them")
    assert (whole.size(), whole.group_name, whole.group_desc) == (size, "merged", "all of them")
    x = torch.tensor([float(rank)])
    whole.allreduce([x]).wait()
    assert x.item() == sum(range(size))
    turn = torch.zeros(size)
    turn[whole.rank()] = 1
    whole.allreduce([turn]).wait()
    assert turn.tolist() == [1.0] * size
    check(part, own)
    whole.shutdown()
    check_world(size)


def bound(rank, size, folder):
    """A default group with a device: new_group tells ranks that are no members, too."""
    store = dist.FileStore(os.path.join(folder, "store"), size)
    dist.init_process_group("weft", store=store, rank=rank, world_size=size, device_id=CPU)
    splits(rank, size)
    new_groups(rank, size)


def prefers_torchcomms(rank, size):
    """As with TORCH_DISTRIBUTED_USE_TORCHCOMMS=1: a backend that torchcomms lacks is torch's own."""
    everyone = list(range(size))
    with dist.config.patch(use_torchcomms=True):
        check(dist.new_group(everyone), everyone)
        check(dist.split_group(split_ranks=[everyone]), everyone)
        check(init_device_mesh("cpu", (size,)).get_group(), everyone)


class Groups(unittest.TestCase):
    """Each function runs on an even number of ranks."""

    @unittest.skipUnless(SPLITS_ON_CPU, "this torch splits groups of CUDA devices only")
    def test_splits(self):
        for size in (4,) if ranks.SMALL else (2, 4):
            ranks.run(size, splits)

    @unittest.skipUnless(SPLITS_ON_CPU, "this torch splits groups of CUDA devices only")
    def test_split_keeps_options(self):
        import weft.torch

        ranks.run(2, keeps_options, options=lambda: weft.torch.Options(algo="ring"))

    @unittest.skipUnless(SPLITS_ON_CPU, "this torch splits groups of CUDA devices only")
    def test_prefers_torchcomms(self):
        ranks.run(2, prefers_torchcomms)

    def test_new_groups(self):
        ranks.run(4, new_groups)

    @unittest.skipUnless(SPLITS_ON_CPU, "this torch binds groups to CUDA devices only")
    def test_bound_to_a_device(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks.run(4, bound, folder, backend=None)

    def test_merges(self):
        for size in (2, 4):
            ranks.run(size, merges)


if __name__ == "__main__":
    unittest.main()
