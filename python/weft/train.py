"""Training: gradients in buckets, averaged over all ranks while others are computed, sharded models, checkpoints.

    ddp = weft.train.Ddp(comm, {"weight": weight, "bias": bias})
    with ddp.iteration():
        for name in ("bias", "weight"):        # the last layer's gradient comes first
            ddp.gradient(name)[...] = compute(name)
            ddp.ready(name)
    # now they are averages

docs/guide/training.md and docs/guide/sharded-training.md are the guides.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Union

from . import _results, _weft
from ._communicator import Communicator
from ._errors import Error, refuse
from ._objects import _Training
from ._train_local import Local
from ._train_checkpoint import Box, Checkpoint, Contents, Replica, StoredTensor, checkpoint_contents
from ._train_optimizer import (
    DistributedSampler,
    Optimizer,
    Scaler,
    batch_norm_backward,
    batch_norm_forward,
    clip_gradients,
    gradient_norm,
)
from ._train_server import ParameterServer, ServerStats
from ._train_shard import Piece, Shard, Stats, Unit
from ._train_stragglers import Stragglers

Named = Union[Mapping[str, Any], Iterable[tuple[str, Any]]]


def _pairs(named: Optional[Named]) -> list[tuple[str, Any]]:
    if named is None:
        return []
    return list(named.items()) if isinstance(named, Mapping) else list(named)


class Bucket:
    """Gradients of one dtype, as a hook sees them: hook(bucket) replaces ``bucket.data`` by the average of all ranks.

    It is valid during the hook only. All ranks call their hooks for the same buckets, in one order. In host memory a
    thread of the Ddp or Ddp.finish calls them.

    On a device the call of the Ddp that fills a bucket runs its hook: Ddp.ready, or begin, finish or join. The hook
    enqueues all work that reads or writes ``data`` or scratch memory on ``stream``, and does not wait for it. So calls of
    ``comm`` get ``stream=bucket.stream``, which serves host memory, too.
    """

    def __init__(self, bucket: _weft.TrainBucket, names: list[str], forms: list[Any], comm: Communicator) -> None:
        self._bucket = bucket
        self._names = names
        self._forms = forms
        self.comm = comm  #: a Communicator for the hook's calls; all ranks make the same ones

    @property
    def stream(self) -> Optional[int]:
        """The address of a CUDA stream, as torch.cuda.ExternalStream and cupy take it; None in host memory."""
        return self._bucket.stream

    @property
    def index(self) -> int:
        """From 0, the order of the launches; equal on all ranks."""
        return self._bucket.index

    @property
    def divisor(self) -> int:
        """The average is the sum over all ranks divided by it."""
        return self._bucket.divisor

    @property
    def layout(self) -> int:
        """Changes when the buckets are rebuilt: state that a hook keeps for them is void then."""
        return self._bucket.layout

    @property
    def names(self) -> list[str]:
        """Of the parameters, in the order in which their gradients lie in ``data``."""
        return [self._names[number] for number in self._bucket.parameters]

    @property
    def offsets(self) -> list[int]:
        """Where each parameter begins in ``data``, in elements."""
        return self._bucket.offsets

    @property
    def data(self) -> Any:
        """This rank's gradients: one dimension, of the library of the first parameter. Change it in place."""
        return _results.over(self._forms[self._bucket.parameters[0]], self._bucket.memory, (-1,))

    def average(self, sent_as: Optional[str] = None) -> None:
        """Averages ``data`` over all ranks. sent_as: "float16" or "bfloat16" sends fewer bytes."""
        self._bucket.average(sent_as or "")

    def compress(self, compressor: "Compressor") -> None:
        """Replaces ``data`` by its approximate average over all ranks, in the way of the Compressor."""
        self._bucket.compress(compressor)

    def scratch(self, nbytes: int) -> Any:
        """Memory that stays with its contents until the buckets are rebuilt. Delete arrays over it in the hook.

        It is a memoryview, or on a device an object with __cuda_array_interface__, whose elements are bytes.
        """
        return self._bucket.scratch(nbytes)


class Compressor(_weft.Compressor):
    """A hook that sends less than the gradients, and its state: ``Ddp(..., hook=Compressor("int8"))``.

    It serves one Ddp. Gradients are computed in float32. Settings are equal on all ranks.

    method: "powersgd", "topk", "onebit", "int8" or "float8".
    start_iteration: gradients are averaged exactly in so many iterations first; None: 1000 for powersgd and onebit,
        otherwise 0.
    error_feedback: what was not sent is added to the next gradients, so that nothing is lost in the sum.
    rank, least_rate, warm_start, seed: powersgd. Columns of the narrow matrices; a matrix is sent whole if fewer than
        1 - 1 / least_rate of its bytes are saved; begin with the last result; of random numbers. Parameters with two
        dimensions or more are matrices, with a row for each index of the first dimension.
    density: topk. The share of numbers that are sent.
    block_count: int8. Elements with one scale.
    momentum: onebit. The result is the gradients' running mean with this factor.
    float8: float8. "float8_e4m3fn", or "float8_e5m2" with more range and less precision.
    layer_scales: onebit with momentum. Each parameter's momentum is sent as a multiple of its root mean square when
        compression began: for 1-bit LAMB.
    """

    def __init__(
        self,
        method: str,
        *,
        start_iteration: Optional[int] = None,
        error_feedback: bool = True,
        rank: int = 1,
        least_rate: float = 2,
        warm_start: bool = True,
        seed: int = 0,
        density: float = 0.01,
        block_count: int = 256,
        momentum: float = 0.9,
        float8: Any = "float8_e4m3fn",
        layer_scales: bool = False,
    ) -> None:
        super().__init__(
            {
                "method": method,
                "start_iteration": -1 if start_iteration is None else start_iteration,
                "error_feedback": error_feedback,
                "rank": rank,
                "least_rate": least_rate,
                "warm_start": warm_start,
                "seed": seed,
                "density": density,
                "block_count": block_count,
                "momentum": momentum,
                "float8": float8,
                "layer_scales": layer_scales,
            }
        )

    def compressed(self) -> bool:
        """Whether the newest bucket was sent compressed, not averaged exactly."""
        return self._compressed()

    def save(self) -> bytes:
        """This rank's state, between iterations: errors that were not sent, momentum, factors, counts."""
        state: bytes = self._save()
        return state

    def load(self, state: bytes) -> None:
        """Replaces the state, on all ranks: of the same method, model, rank and number of ranks."""
        self._load(state)


Hook = Union[None, str, Compressor, Callable[[Bucket], None]]


class Ddp(_Training, _weft.Ddp):
    """A registered model: parameters, buffers, and gradients in buckets.

    All ranks of comm make it with the same names, shapes, dtypes and settings. Then all have the values of rank 0. It
    keeps the arrays. They are numpy's or torch's, or have the buffer protocol.

    If all arrays lie on the CUDA device of comm, so do the gradients. They are torch's or cupy's, or have
    __cuda_array_interface__ or DLPack. Gradients are arrays of the same library over the device's memory, or
    DeviceArrays, which other libraries take. Give the CUDA stream of the computation to each call: the call enqueues its
    work and does not block, and what the stream does later sees the result. None is the legacy default stream there.
    Join, find_unused and the first iterations wait for other ranks.

    parameters, buffers: mappings of names, or pairs. In the order of the forward pass.
    gradients: arrays of the caller for some parameters. Other gradients live in their buckets: Ddp.gradient.
    bucket_cap_bytes: a bucket is full from these bytes on; 0: 1 MiB for the first of a dtype, then 25 MiB.
    divide_by_active: average over the ranks that have not joined, in place of all.
    find_unused: a parameter may have no gradient in an iteration.
    static_graph: every iteration reports the same gradients as the first one, equally often.
    broadcast_buffers: each synchronising iteration begins with the buffers of rank 0.
    join: ranks may have different numbers of iterations.
    hook: None (the average), "float16", "bfloat16", a Compressor, or a function of a Bucket.

    `with` closes it, or ends it on all ranks if an exception leaves the block.
    One thread at a time uses it; abort may come from any thread. After a failed iteration it has ended on all ranks:
    close it. comm lives on.
    """

    def __init__(
        self,
        comm: Communicator,
        parameters: Named,
        *,
        buffers: Optional[Named] = None,
        gradients: Optional[Mapping[str, Any]] = None,
        bucket_cap_bytes: int = 0,
        divide_by_active: bool = False,
        find_unused: bool = False,
        static_graph: bool = False,
        broadcast_buffers: bool = True,
        join: bool = False,
        hook: Hook = None,
    ) -> None:
        pairs: list[tuple[str, Any]] = []
        names: list[str] = []
        forms: list[Any] = []
        own: dict[str, Any] = {}
        entries: list[tuple[str, Any, Any, int]] = []
        others: list[tuple[str, Any]] = []
        refused = None
        try:
            pairs, others, own = _pairs(parameters), _pairs(buffers), dict(gradients or {})
            names = [name for name, _ in pairs]
            self._numbers = {name: number for number, name in enumerate(names)}
            for name in own:
                self._number(name)
            entries = [(name, x, own.get(name), _rows(x)) for name, x in pairs]
        except Exception as error:
            refused = error  # the binding raises it after the other ranks have their error
        super().__init__(
            comm,
            entries,
            others,
            self._called(hook, names, forms) if callable(hook) else hook,
            {
                "bucket_cap_bytes": bucket_cap_bytes,
                "divide_by_active": divide_by_active,
                "find_unused": find_unused,
                "static_graph": static_graph,
                "broadcast_buffers": broadcast_buffers,
                "join": join,
            },
            refused,
        )
        for (_, x), (device, dtype) in zip(pairs, self._facts()):
            forms.append(x if device < 0 else _results.form_of(x, device, dtype))
        self._pairs = pairs
        self._forms = forms
        self._own = own

    @staticmethod
    def _called(
        hook: Callable[[Bucket], None], names: list[str], forms: list[Any]
    ) -> Callable[[_weft.TrainBucket], None]:
        def call(bucket: _weft.TrainBucket) -> None:
            comm = Communicator()
            bucket.borrow_comm(comm)
            try:
                hook(Bucket(bucket, names, forms, comm))
            finally:
                _weft.give_back(comm)

        return call

    def _number(self, parameter: Union[str, int]) -> int:
        if isinstance(parameter, str):
            number = self._numbers.get(parameter)
            if number is None:
                raise refuse("python.value", f"no parameter is named {parameter!r}. Use a name that was registered")
            return number
        return parameter

    def begin(self, *, accumulate: bool = False, stream: Any = None) -> None:
        """Begins an iteration, before the forward pass. accumulate: nothing is sent, and the caller adds gradients up.

        The second iteration that synchronises rebuilds the buckets: ask for the gradients again.
        stream: on a device, the CUDA stream that uses parameters, buffers and gradients.
        """
        self._begin(accumulate, stream)

    def gradient(self, parameter: Union[str, int]) -> Any:
        """The gradient as an array of the parameter's shape: the caller's, or memory in its bucket."""
        number = self._number(parameter)
        memory = self._gradient(number)  # refuses a wrong number
        name, x = self._pairs[number]
        if name in self._own:
            return self._own[name]
        return _results.over(self._forms[number], memory, _results.shape_of(x))

    def ready(self, parameter: Union[str, int], *, stream: Any = None) -> None:
        """This rank has written the gradient. Full buckets are reduced at once, in the same order on all ranks.

        stream: on a device, the CUDA stream that writes the gradient.
        """
        self._ready(self._number(parameter), stream)

    def ready_all(self, parameters: Optional[Iterable[Union[str, int]]] = None, *, stream: Any = None) -> None:
        """ready() for several parameters in one call; None: all, the last one first."""
        names = range(len(self._pairs) - 1, -1, -1) if parameters is None else parameters
        self._ready_all([self._number(each) for each in names], stream)

    def finish(self, *, stream: Any = None) -> None:
        """Ends the iteration. If it synchronises, each gradient is the average over all ranks then.

        stream: on a device, the CUDA stream whose later work sees the averages.
        """
        self._finish(stream)

    @contextlib.contextmanager
    def iteration(self, *, accumulate: bool = False, stream: Any = None) -> Iterator["Ddp"]:
        """begin() and finish(). If an exception leaves the block or finish(), the Ddp ends on all ranks."""
        self.begin(accumulate=accumulate, stream=stream)
        try:
            yield self
            self.finish(stream=stream)
        except BaseException:
            self._give_up()
            raise

    def join(self, *, stream: Any = None) -> None:
        """Takes part in the other ranks' iterations with zeros, until every rank has called it."""
        self._join(stream)

    def used(self, parameter: Union[str, int]) -> bool:
        """Whether some rank reported the gradient in the newest iteration that synchronised."""
        return self._used(self._number(parameter))

    def bucket(self, parameter: Union[str, int]) -> int:
        """The index of the parameter's bucket, in the order of the launches."""
        return self._bucket(self._number(parameter))

    def reduced(self) -> bool:
        """Whether the gradients are averages: the newest iteration synchronised, and has ended."""
        return self._reduced()

    @property
    def bucket_count(self) -> int:
        """How many buckets there are; it changes when they are rebuilt."""
        return self._bucket_count()

    def zero_gradients(self, *, stream: Any = None) -> None:
        """Sets all gradients to zero: before begin, or in an iteration that accumulates."""
        self._zero_gradients(stream)

    def async_error(self) -> Optional[Error]:
        """The error that has ended the Ddp, or None. Does not wait."""
        error: Optional[Error] = self._async_error()
        return error

    def abort(self) -> None:
        """Ends the iteration on all ranks with an error. From any thread."""
        self._abort()

    def close(self) -> None:
        """Frees the gradients. Other ranks get an error if an iteration that synchronises is open.

        On a device wait first for the streams that use gradients.
        """
        self._close()


def _rows(x: Any) -> int:
    try:
        shape = _results.shape_of(x)
    except Exception:  # the Ddp refuses it
        return 0
    return shape[0] if len(shape) > 1 else 0


__all__ = ["Box", "Bucket", "Checkpoint", "Compressor", "Ddp", "DistributedSampler", "Local", "Optimizer", "ParameterServer", "Piece", "Replica", "Scaler", "ServerStats", "Shard", "Stats", "Stragglers", "Unit", "batch_norm_backward", "batch_norm_forward", "clip_gradients", "gradient_norm"]
