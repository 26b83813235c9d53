"""Optimizers, norms, loss scaling, statistics of batch norm, and samples: weft.train."""

from __future__ import annotations

import math
import os
import sys
from typing import Any, Iterable, Iterator, Mapping, Optional, Sequence, Sized, Union

from . import _results, _weft
from ._communicator import Communicator
from ._errors import refuse
from ._objects import _Closing

Named = Union[Mapping[str, Any], Iterable[tuple[str, Any]]]
Axes = Sequence[Communicator]
Sharded = Optional[Mapping[str, Iterable[int]]]


def _masks(names: list[str], axes: Axes, sharded: Sharded) -> list[int]:
    masks = dict.fromkeys(names, 0)
    for name, numbers in (sharded or {}).items():
        if name not in masks:
            raise refuse("python.value", f"sharded names {name!r}, which is no parameter. Use a name of a parameter")
        for number in numbers:
            if not 0 <= number < len(axes):
                raise refuse("python.value", f"{name!r} is sharded over axis {number}, but there are {len(axes)} axes")
            masks[name] |= 1 << number
    return [masks[name] for name in names]


def _gradient_parts(gradients: Named, axes: Axes, sharded: Sharded) -> list[tuple[str, Any, Any, Any, int]]:
    pairs = list(gradients.items()) if isinstance(gradients, Mapping) else list(gradients)
    masks = _masks([name for name, _ in pairs], axes, sharded)
    return [(name, None, None, gradient, mask) for (name, gradient), mask in zip(pairs, masks)]


class Optimizer(_Closing, _weft.TrainOptimizer):
    """An optimizer of this rank's parts of a model, with its moments, in host memory or on one CUDA device.

    algorithm: "sgd", "adam", "adamw", "lamb", "lars" or "onebit_lamb". The rules are those of torch.optim and of the
        papers.
    parameters: a mapping of names, or pairs: float32 arrays, which a step changes.
    gradients: their gradients: float32, float16 or bfloat16. A name without one stays as it is.
    copies: float16 or bfloat16 arrays of some parameters, which a step writes.
    axes, sharded: the communicators of a mesh, and over which of them, by number, a parameter is sharded. "lamb" and
        "lars" sum norms over them: all ranks of each axis call step. Other algorithms do not communicate.
    bias_correction: False: the moments of "adam", "adamw" and "lamb" are used as they are, and betas[1] may be 1, which
        freezes exp_avg_sq.
    ddp: a Ddp whose gradients are used for parameters without their own. A step in the middle of an accumulation is
        an error.
    shard: a Shard of whose pieces parameters and gradients are. A step before its iteration is finished is an error.
        A parameter without a gradient gets gradients of the Shard's dtype later.
    compressor: "onebit_lamb": the hook of the Ddp, a Compressor("onebit", momentum=betas[0], layer_scales=True).
        bias_correction is False then.
    offload: a folder on a disk of this host: the moments lie in a file there, without a name, in place of memory. All
        ranks of the axes call Optimizer() and step(), and an error of one's disk is an error on all of them. Results
        have the bits of those without it. After a step that failed, make a new Optimizer and load a checkpoint.
    offload_values: the float32 values lie in the file, too. The parameters' arrays are read now and never again; the
        model uses the copies.
    offload_chunk, offload_buffers: how many elements of each array are read at once (0: 262144), and how many chunks
        are in memory during a step.
    offload_engine: "any", "uring" (io_uring, or an error) or "threads".
    local: with ddp: a Local. While local.accumulates, as in post-local SGD, a step takes this rank's own gradients.
    """

    def __init__(
        self,
        algorithm: str,
        parameters: Named,
        *,
        gradients: Optional[Mapping[str, Any]] = None,
        copies: Optional[Mapping[str, Any]] = None,
        axes: Axes = (),
        sharded: Sharded = None,
        momentum: float = 0.0,
        dampening: float = 0.0,
        nesterov: bool = False,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        trust: float = 0.001,
        bias_correction: bool = True,
        ddp: Any = None,
        shard: Any = None,
        compressor: Any = None,
        offload: Optional[Union[str, os.PathLike[str]]] = None,
        offload_values: bool = False,
        offload_chunk: int = 0,
        offload_buffers: int = 4,
        offload_engine: str = "any",
        local: Any = None,
    ) -> None:
        if local is not None and ddp is None:
            raise refuse("python.value", "local is for the gradients of a Ddp. Pass ddp, too")
        pairs = list(parameters.items()) if isinstance(parameters, Mapping) else list(parameters)
        names = [name for name, _ in pairs]
        own, rounded = dict(gradients or {}), copies or {}
        for kind, named in (("gradients", own), ("copies", rounded)):
            for name in named:
                if name not in names:
                    raise refuse("python.value", f"{kind} names {name!r}, which is no parameter")
        masks = _masks(names, axes, sharded)
        self._of_ddp = [] if ddp is None else [name for name in names if name not in own]
        own = {**own, **{name: ddp.gradient(name) for name in self._of_ddp}}
        super().__init__(
            [
                (name, x, rounded.get(name), own.get(name), mask, None if shard is None else shard._gradient_type(name))
                for (name, x), mask in zip(pairs, masks)
            ],
            list(axes),
            {
                "algorithm": algorithm,
                "momentum": momentum,
                "dampening": dampening,
                "nesterov": nesterov,
                "beta1": betas[0],
                "beta2": betas[1],
                "eps": eps,
                "weight_decay": weight_decay,
                "trust": trust,
                "bias_correction": bias_correction,
                "offload": None if offload is None else os.fspath(offload),
                "offload_values": offload_values,
                "offload_chunk": offload_chunk,
                "offload_buffers": offload_buffers,
                "offload_engine": offload_engine,
            },
            None if local is not None else ddp,
            shard,
            compressor,
        )
        self._local = local
        # Small arrays, so that a closed Optimizer keeps no memory of the caller's.
        self._forms = [(_form(x, name), _results.shape_of(x)) for name, x in pairs]
        self._numbers = {name: number for number, name in enumerate(names)}
        self._ddp = ddp
        self._drop_gradients()

    def _number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            raise refuse("python.value", f"no parameter is named {name!r}")
        return number

    def step(self, lr: float, *, gradient_scale: float = 1.0, skip: bool = False, stream: Any = None) -> None:
        """One step. gradient_scale multiplies the gradients: 1 / loss scale, or a clip coefficient. skip: nothing.

        stream: on a device, the CUDA stream on which the step is enqueued. "lamb", "lars" and "onebit_lamb" wait for it.
        """
        if self._local is not None and not self._local.accumulates and not self._ddp.reduced():
            raise refuse(
                "train.step",
                "the gradients of the Ddp are not averages, but local.accumulates is false. Make the step after an "
                "iteration that synchronises",
            )
        for name in self._of_ddp:
            self.set_gradient(name, self._ddp.gradient(name))
        try:
            self._step(lr, gradient_scale, skip, stream)
        finally:
            self._drop_gradients()

    def _drop_gradients(self) -> None:
        # The Ddp may be closed while no array of its memory is kept.
        for name in self._of_ddp:
            self.set_gradient(name, None)

    def set_gradient(self, name: str, gradient: Any) -> None:
        """Another array for a gradient, of the same dtype; None: it has none."""
        self._set_gradient(self._number(name), gradient)

    def state(self, name: str) -> dict[str, Any]:
        """A parameter's moments by torch's names, as arrays that may be read and written between steps.

        They lie where the parameter lies. With offload they have no memory: see read_state.
        """
        number = self._number(name)
        form, shape = self._forms[number]
        return {key: _results.over(form, memory, shape) for key, memory in self._states(number)}

    def read_state(self, name: str) -> dict[str, Any]:
        """Copies of a parameter's moments by torch's names, and of "values" that are offloaded: for checkpoints.

        They lie in host memory.
        """
        number = self._number(name)
        form, shape = self._forms[number]
        copies = {key: _floats(form, shape) for key in self._state_names()}
        for place, copy in enumerate(copies.values()):
            self._read_state(number, place, copy)
        return copies

    def write_state(self, name: str, state: Mapping[str, Any]) -> None:
        """Sets the arrays of a parameter that `state` names, as read_state gave them."""
        number, names = self._number(name), self._state_names()
        for key, values in state.items():
            if key not in names:
                raise refuse("python.value", f"state has {key!r}; the optimizer has {', '.join(names) or 'no state'}")
            self._write_state(number, names.index(key), values)

    def steps(self, name: str) -> int:
        """How many steps the parameter has taken."""
        return self._steps(self._number(name))

    def set_steps(self, name: str, steps: int) -> None:
        """Sets it, after moments were restored."""
        self._set_steps(self._number(name), steps)

    def trust(self, name: str) -> tuple[float, float]:
        """"onebit_lamb": a parameter's mean ratio, and the factor of its newest compressed step; 0: there was none."""
        return self._trust(self._number(name))

    def set_trust(self, name: str, trust: float, factor: float) -> None:
        """Sets them, after moments were restored."""
        self._set_trust(self._number(name), trust, factor)

    def close(self) -> None:
        """Frees the moments. On a device wait first for the streams of its steps."""
        self._close()


def gradient_norm(gradients: Named, *, axes: Axes = (), sharded: Sharded = None, p: float = 2.0, stream: Any = None) -> float:
    """The p-norm of all gradients together, the same on all ranks.

    Sharded gradients are summed over their axes, and replicated ones count once. All ranks of each axis call it.
    stream: on a device, the CUDA stream that has written the gradients.
    """
    return _weft.train_norm(_gradient_parts(gradients, axes, sharded), list(axes), p, stream)


def clip_gradients(
    gradients: Named, norm: float, max_norm: float, *, error_if_nonfinite: bool = False, stream: Any = None
) -> None:
    """Multiplies gradients in place by max_norm / (norm + 1e-6), at most 1, as torch's clip_grad_norm_.

    stream: on a device, the CUDA stream on which this is enqueued.
    """
    _weft.train_clip(_gradient_parts(gradients, (), None), norm, max_norm, error_if_nonfinite, stream)


class Scaler(_Closing, _weft.TrainScaler):
    """A dynamic loss scale with the rule of torch.amp.GradScaler.

    axes: the communicators over which an infinite gradient counts. All their ranks call unscale.
    least_scale: a scale that would fall below it is an error.
    """

    def __init__(
        self,
        axes: Axes = (),
        *,
        scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        least_scale: float = 1.0,
    ) -> None:
        super().__init__(
            list(axes),
            {
                "scale": scale,
                "growth_factor": growth_factor,
                "backoff_factor": backoff_factor,
                "growth_interval": growth_interval,
                "least_scale": least_scale,
            },
        )

    @property
    def scale(self) -> float:
        """Multiplies the loss."""
        return self._scale()

    @property
    def good_steps(self) -> int:
        """Since the scale has changed."""
        return self._good_steps()

    def restore(self, scale: float, good_steps: int) -> None:
        """Sets the state, as from a checkpoint."""
        self._restore(scale, good_steps)

    def unscale(self, gradients: Named, *, divide: bool = True, stream: Any = None) -> bool:
        """Divides gradients by the scale. True if any of any rank is infinite or NaN: skip the step then.

        divide=False: they stay, and Optimizer.step gets gradient_scale=1 / scale. float16 gradients need it: they
        cannot hold the quotients. stream: on a device, the CUDA stream that has written the gradients.
        """
        return self._unscale(_gradient_parts(gradients, (), None), divide, stream)

    def update(self) -> None:
        """Ends a step: the scale falls or grows."""
        self._update()

    def close(self) -> None:
        """Frees it."""
        self._close()


def _form(x: Any, name: str) -> Any:
    device, dtype = _weft.array_facts(x, name)
    return _results.form_of(x, None if device < 0 else device, dtype)


def _floats(x: Any, shape: tuple[int, ...]) -> Any:
    """A new float32 array of x's library in host memory. DeviceArrays have a memoryview."""
    libraries = [each.__module__.split(".")[0] for each in type(x).__mro__]
    if "torch" in libraries:
        return x.new_empty(shape, dtype=sys.modules["torch"].float32, device="cpu")
    if "numpy" in libraries or "cupy" in libraries:  # cupy needs numpy
        return sys.modules["numpy"].empty(shape, "float32")
    if isinstance(x, _results.DeviceArray):
        return memoryview(bytearray(4 * math.prod(shape))).cast("f")
    raise refuse("python.out", f"no statistics can be made for type {type(x).__name__}. Pass arrays of numpy or torch")


def _floats_beside(x: Any, shape: tuple[int, ...], comm: Communicator) -> Any:
    """A new float32 array of x's library in x's memory. Unknown libraries have a DeviceArray on devices."""
    if not hasattr(x, "__cuda_array_interface__"):
        return _floats(x, shape)
    libraries = [each.__module__.split(".")[0] for each in type(x).__mro__]
    if "torch" in libraries:
        return x.new_empty(shape, dtype=sys.modules["torch"].float32)
    if "cupy" in libraries:
        return sys.modules["cupy"].empty(shape, "float32")
    memory = _weft.DeviceMemory(4 * math.prod(shape))
    return _results.DeviceArray(memory, shape, "float32", comm.device)


def _layer(x: Any) -> list[int]:
    shape = _results.shape_of(x)
    if len(shape) < 2:
        raise refuse("python.size", f"x has shape {shape}; it must be (batch, channels, ...)")
    inner = 1
    for length in shape[2:]:
        inner *= length
    return [shape[0], shape[1], inner]


def batch_norm_forward(
    x: Any,
    comm: Communicator,
    *,
    eps: float = 1e-5,
    momentum: float = 0.1,
    running_mean: Any = None,
    running_variance: Any = None,
    count: Any = None,
    stream: Any = None,
) -> tuple[Any, Any, Any]:
    """Each channel's mean, its 1 / sqrt(variance + eps), and its elements, over all ranks, also those with none.

    x: (batch, channels, ...). running_mean and running_variance: float32 arrays that follow, or None.
    The output is (x - mean) * invstd * weight + bias.
    stream: on a device, the CUDA stream of the work. count: an array of one int64 there, which receives the number of
    elements and is returned; without it the call waits for the number. Keep all arrays until the work is done.
    """
    shape = _layer(x)
    mean, invstd = _floats_beside(x, (shape[1],), comm), _floats_beside(x, (shape[1],), comm)
    running = (running_mean, running_variance)
    found = _weft.train_batch_norm_forward(comm, x, shape, eps, momentum, running, mean, invstd, count, stream)
    return mean, invstd, found if count is None else count


def batch_norm_backward(
    x: Any, dy: Any, mean: Any, comm: Communicator, *, stream: Any = None
) -> tuple[Any, Any]:
    """Each channel's sums of dy and of dy * (x - mean), as arrays (2, channels): of this rank, and of all ranks.

    This rank's are the gradients of bias and, times invstd, of weight. With those of all ranks the input's gradient is
    (dy - sums[0] / count - (x - mean) * invstd**2 * sums[1] / count) * invstd * weight.
    stream: on a device, the CUDA stream of the work.
    """
    shape = _layer(x)
    own, sums = _floats_beside(x, (2, shape[1]), comm), _floats_beside(x, (2, shape[1]), comm)
    _weft.train_batch_norm_backward(comm, x, dy, shape, mean, own, sums, stream)
    return own, sums


class DistributedSampler:
    """Numbers of the samples that a rank takes, by the rule of torch's DistributedSampler.

    samples: their number, or an object with a length.
    shuffle: in an order that seed and epoch determine, equal on all ranks and machines. It is not torch.randperm's.
    drop_last: leaves the last incomplete turn out. Otherwise the first samples fill it.
    """

    def __init__(
        self,
        samples: Union[int, Sized],
        ranks: int,
        rank: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self.samples = samples if isinstance(samples, int) else len(samples)
        self.ranks, self.rank = ranks, rank
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.epoch = 0
        if not 0 <= rank < ranks:
            raise refuse("python.value", f"rank is {rank}; it must be 0 to {ranks - 1}")

    def set_epoch(self, epoch: int) -> None:
        """Call it before each epoch, so that each has its own order."""
        self.epoch = epoch

    def __len__(self) -> int:
        return _weft.train_sampler_count(self.samples, self.ranks, self.drop_last)

    def __iter__(self) -> Iterator[int]:
        order = _weft.train_shuffle(self.samples, self.seed + self.epoch) if self.shuffle else []
        return iter(_weft.train_sampler_indices(self.samples, self.ranks, self.rank, self.drop_last, order))
