"""weft.train with tensors of torch on a device: Ddp, Shard, Local, ParameterServer, batch norm. The device is fakegpu, or cuda
on a GPU."""

import unittest
from unittest import mock

import torch

import ranks
import weft
from ranks import here

KDL_CUDA = 2  # DLPack's number of the device type


class _Exported(torch.Tensor):
    """A tensor of fakegpu that exports its memory as one of CUDA does."""

    def __dlpack_device__(self):
        return (KDL_CUDA, self.device.index)

    def __dlpack__(self, **_):
        return torch.utils.dlpack.to_dlpack(self.as_subclass(torch.Tensor))

    @property
    def __cuda_array_interface__(self):
        kind = {torch.float32: "<f4", torch.int64: "<i8"}[self.dtype]
        return {"shape": tuple(self.shape), "typestr": kind, "data": (self.data_ptr(), False), "version": 3}


def on_device(tensor):
    """The tensor's numbers on this rank's device, for weft."""
    tensor = tensor.to(here())
    return tensor.as_subclass(_Exported) if ranks.DEVICE == "fakegpu" else tensor


def stream():
    current = torch.accelerator.current_stream(here())
    return current.native_handle or None  # the legacy stream is 0


def plain(tensor):
    return tensor.as_subclass(torch.Tensor).cpu()


def run(bodies):
    """Each body(comm) on two ranks, in one pair of processes: their start takes seconds."""
    ranks.run(2, _rank, weft.unique_id(), bodies, backend=None)


def _rank(rank, size, unique_id, bodies):
    torch_as_tensor = torch.as_tensor

    def as_tensor(memory, *arguments, **named):
        if ranks.DEVICE != "fakegpu" or not hasattr(memory, "__cuda_array_interface__"):
            return torch_as_tensor(memory, *arguments, **named)
        import fake_device

        tensor = fake_device.over(memory, named["device"]).as_subclass(_Exported)
        tensor.memory = memory
        return tensor

    with mock.patch.object(torch, "as_tensor", as_tensor), weft.init(
        rank=rank, size=size, unique_id=unique_id, device=here().index
    ) as comm:
        for body in bodies:
            body(comm)


def _ddp(comm):
    model = {"weight": on_device(torch.full((3, 5), float(comm.rank))), "bias": on_device(torch.zeros(4))}
    with weft.train.Ddp(comm, model) as ddp:
        assert not plain(model["weight"]).any()
        for step in range(3):
            with ddp.iteration(stream=stream()):
                for name in ("bias", "weight"):
                    gradient = ddp.gradient(name)
                    assert (gradient.device, gradient.shape) == (here(), model[name].shape)
                    gradient.fill_(comm.rank + step)
                    ddp.ready(name, stream=stream())
            assert torch.equal(plain(ddp.gradient("weight")), torch.full((3, 5), step + 0.5, device="cpu"))
        optimizer = weft.train.Optimizer("sgd", model, ddp=ddp)
        optimizer.step(0.5, stream=stream())
        ranks.synchronize()
        assert torch.equal(plain(model["bias"]), torch.full((4,), -1.25, device="cpu"))
        optimizer.close()


def _shard(comm):
    units = {"unit": {"weight": on_device(torch.arange(10.0))}}
    with weft.train.Shard(comm, units, pool_gradients=True) as shard:
        for step in range(2):
            with shard.iteration(stream=stream()):
                with shard.gather("unit", backward=True, stream=stream()) as whole:
                    assert torch.equal(plain(whole["weight"]), torch.arange(10.0, device="cpu"))
                    shard.gradient("weight").fill_(comm.rank + step)
                shard.reduce_scatter("unit", stream=stream())
            piece = shard.piece("weight")
            gradient = plain(piece.gradient)
            torch.testing.assert_close(gradient, torch.full_like(gradient, step + 0.5))
            shard.zero_gradients()


def _local(comm):
    model = {"weight": on_device(torch.full((3,), float(comm.rank)))}
    with weft.train.Local(comm, model, period=2) as local:
        for _ in range(3):
            model["weight"].add_(comm.rank)
            local.step(stream=stream())
    assert torch.equal(plain(model["weight"]), torch.full((3,), 1.5, device="cpu"))


def _server(comm):
    model, gradients = ({"weight": on_device(torch.full((3,), number))} for number in (0.0, 1.0))
    with weft.train.ParameterServer(comm, model, gradients=gradients, learning_rate=0.5) as server:
        if comm.rank == 0:
            server.serve()
        else:
            for _ in range(2):
                server.push(stream=stream())
                server.pull(stream=stream())
            server.finish()
    assert torch.equal(plain(model["weight"]), torch.full((3,), -1.0, device="cpu"))


def _batch_norm(comm):
    x = on_device(torch.arange(4.0).reshape(2, 2) + comm.rank)  # channels 0 to 3, and 1 to 4
    mean, invstd, count = weft.train.batch_norm_forward(x, comm, eps=0.0, stream=stream())
    assert (mean.device, count) == (here(), 4)
    torch.testing.assert_close(plain(mean), torch.tensor([1.5, 2.5], device="cpu"))
    torch.testing.assert_close(plain(invstd), torch.full((2,), 1.25, device="cpu").rsqrt())
    counted = on_device(torch.zeros(1, dtype=torch.int64))
    again = weft.train.batch_norm_forward(x, comm, count=counted, stream=stream())
    assert again[2] is counted
    ranks.synchronize()
    assert plain(counted).item() == 4
    own, sums = weft.train.batch_norm_backward(x, x, mean, comm, stream=stream())
    assert sums.device == here() and own.shape == (2, 2)
    torch.testing.assert_close(plain(sums)[0], torch.tensor([6.0, 10.0], device="cpu"))


class TrainArrays(unittest.TestCase):
    def test_all_objects_take_tensors_of_a_device(self):
        run((_ddp, _shard, _local, _server, _batch_norm))


if __name__ == "__main__":
    unittest.main()
