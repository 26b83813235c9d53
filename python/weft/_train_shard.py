"""weft.train.Shard: a model that is sharded in units (FSDP, HSDP, ZeRO)."""

from __future__ import annotations

import contextlib
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Optional, Union

from . import _results, _weft
from ._communicator import Communicator
from ._errors import Error, refuse
from ._objects import _Training
from ._train_checkpoint import Box

Named = Union[Mapping[str, Any], Iterable[tuple[str, Any]]]


class Unit(Mapping[str, Any]):
    """A gathered unit: names of parameters, and whole arrays. They are valid until it is released; `with` does that."""

    def __init__(self, shard: "Shard", number: int, names: list[str], backward: bool, stream: Any) -> None:
        self._shard = shard
        self._number = number
        self._names = names
        self._backward = backward
        self._stream = stream

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return self._shard.parameter(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __enter__(self) -> "Unit":
        return self

    def __exit__(self, kind: Optional[type], *_: object) -> None:
        if kind is None:
            self.release()
            return
        with contextlib.suppress(Error):  # the exception that leaves the block is the cause
            self.release()

    def release(self) -> None:
        """Its arrays must not be used any more, by later work of its stream on a device. Does not wait."""
        self._shard._release(self._number, self._backward, self._stream)


class Piece(NamedTuple):
    """This rank's part of a parameter: elements `begin` to ``begin + len(values)``, in one dimension."""

    values: Any  #: for the optimizer: change them between finish and the next gather
    gradient: Any  #: the reduced gradient, or None if there is none or an iteration is open
    begin: int  #: the first element


class Stats(NamedTuple):
    """Elements that a Shard has moved on this rank, and its memory."""

    gathered_elements: int  #: of whole units
    reduced_elements: int  #: of whole units
    shard_bytes: int  #: memory that it has now for this rank's values and gradients
    whole_bytes: int  #: likewise for whole units, whole gradients and messages
    gathered_bytes: int  #: received from other ranks by gathers
    gathered_remote_bytes: int  #: of those, from other hosts
    reduced_bytes: int  #: sent to other ranks by reduce-scatters
    reduced_remote_bytes: int  #: of those, to other hosts
    host_bytes: int  #: of shard_bytes, host memory
    most_bytes: int  #: the most memory of both at once, since creation


class _Form(NamedTuple):
    """The shape of a parameter, and arrays of the libraries and dtypes of its values and gradients."""

    shape: tuple[int, ...]
    values: Any
    whole: Any
    gradient: Any


class Shard(_Training, _weft.Shard):
    """A registered model of which each rank has a part: of optimizer states, gradients or parameters.

    All ranks of comm make it with the same units, names, shapes, dtypes and settings. Then each has its part of the
    values of rank 0. It does not keep the arrays. They are numpy's or torch's, or have the buffer protocol; other
    ranks than 0 may pass arrays of any values.

    If all arrays lie on the CUDA device of comm, so does the model. They are torch's or cupy's, or have
    __cuda_array_interface__ or DLPack. Whole parameters, gradients and pieces are arrays of the same library over the
    device's memory, or DeviceArrays, which other libraries take. Give the CUDA stream of the computation to each call:
    the call enqueues its work and does not block. None is the legacy default stream there.

    units: names of units, and for each one names of parameters and arrays. Mappings, or pairs. In the order of the
        forward pass. Names of parameters are different in all units.
    stage: what is sharded, as in ZeRO: 1: optimizer states, 2: gradients, too, 3: parameters, too.
    sharding: "flat": equal parts of each unit's bytes; "rows": rows of each parameter, as FSDP2.
    shard_ranks: consecutive ranks that share one copy of the model (HSDP); 0: all ranks.
    reshard_ranks: after the forward pass a unit is sharded over groups of so many ranks; 0: as before, 1: each rank
        keeps it, which suits the last unit. For all units, or by name.
    divisor: of gradients; 0: the number of ranks.
    parameter_type, reduce_type, output_type: dtypes for mixed precision of float32 parameters of numpy or torch: of
        whole units and their gradients, of gradients while they are reduced, of reduced gradients. None: as before.
    gather_bits: 8: shards are gathered as int8 (ZeRO++); 0: exactly.
    reduce_bits: 4 or 8: gradients are sent so, within the host and then between hosts; 0: exactly.
    block_count: elements that share a scale.
    keep_gradients: host memory of gradients stays allocated between iterations, for a faster step.
    overwrite_gradients: a whole gradient begins with any numbers in place of zeros, for a faster step: whoever asks for one
        writes every element of all gradients of the unit.
    pool_gradients: on a device, whole gradients come from its memory pool, and go back to it at the end of an iteration.
    shards_on_host: the pieces of a model on a device lie in pinned host memory (CPU offload), as arrays of torch, numpy
        or memoryviews: an Optimizer of host memory updates them. finish() then blocks until the gradients are there.

    `with` closes it, or ends it on all ranks if an exception leaves the block.
    One thread at a time uses it; abort may come from any thread. After a failed call of a communicator it has ended on
    all ranks: close it. comm lives on.
    """

    def __init__(
        self,
        comm: Communicator,
        units: Named,
        *,
        stage: int = 3,
        sharding: str = "flat",
        shard_ranks: int = 0,
        reshard_ranks: Union[int, Mapping[str, int]] = 0,
        divisor: float = 0.0,
        parameter_type: Any = None,
        reduce_type: Any = None,
        output_type: Any = None,
        gather_bits: int = 0,
        reduce_bits: int = 0,
        block_count: int = 256,
        shards_on_host: bool = False,
        keep_gradients: bool = False,
        overwrite_gradients: bool = False,
        pool_gradients: bool = False,
    ) -> None:
        self._parameters: dict[str, int] = {}
        self._devices: dict[int, str] = {}  # of the arrays: -1: host memory; with the name of one
        self._forms: list[_Form] = []
        self._types = (parameter_type, output_type)
        self._units: dict[str, tuple[int, list[str]]] = {}
        entries: list[tuple[str, list[tuple[str, Any, int]], int]] = []
        refused = None
        try:
            for name, parameters in _pairs(units):
                ranks = reshard_ranks if isinstance(reshard_ranks, int) else reshard_ranks.get(name, 0)
                pairs = _pairs(parameters)
                self._units[name] = (len(entries), [each for each, _ in pairs])
                entries.append((name, self._read(pairs), ranks))
            if not isinstance(reshard_ranks, int):
                for name in reshard_ranks:
                    self._unit(name)
            self._check_devices(comm)
            if sharding not in ("flat", "rows"):
                raise refuse("python.value", f"sharding is {sharding!r}; it must be flat or rows")
        except Exception as error:
            refused = error
        settings: dict[str, Any] = {"rows": sharding == "rows", "stage": stage, "shard_ranks": shard_ranks, "divisor": divisor}
        settings.update(gather_bits=gather_bits, reduce_bits=reduce_bits, block_count=block_count)
        settings.update(on_device=any(each >= 0 for each in self._devices), shards_on_host=shards_on_host)
        settings.update(
            keep_gradients=keep_gradients, overwrite_gradients=overwrite_gradients, pool_gradients=pool_gradients
        )
        types = {"parameter_type": parameter_type, "reduce_type": reduce_type, "output_type": output_type}
        settings.update({name: None if each is None else _name(each) for name, each in types.items()})
        super().__init__(comm, entries, settings, refused)

    def _read(self, pairs: list[tuple[str, Any]]) -> list[tuple[str, Any, int]]:
        entries = []
        for name, x in pairs:
            shape = _results.shape_of(x)
            self._parameters[name] = len(self._forms)
            device, dtype = _weft.array_facts(x, name)
            self._devices.setdefault(device, name)
            form = _results.form_of(x, None if device < 0 else device, dtype)
            self._forms.append(_Form(shape, form, *(_in_type(form, each) for each in self._types)))
            entries.append((name, x, shape[0] if shape else 0))
        return entries

    def _check_devices(self, comm: Communicator) -> None:
        if len(self._devices) > 1:
            one, other = list(self._devices.items())[:2]
            places = [f"{name} lies {'in host memory' if at < 0 else f'on cuda:{at}'}" for at, name in (one, other)]
            raise refuse("python.device", f"{places[0]}, but {places[1]}. Put all arrays of the model on one device")
        for device, name in self._devices.items():
            if device >= 0 and device != comm.device:
                raise refuse(
                    "python.device",
                    f"{name} lies on cuda:{device}, but the device of comm is cuda:{comm.device}. "
                    "Pass arrays of that device",
                )

    def _unit(self, unit: Union[str, int]) -> int:
        if not isinstance(unit, str):
            return unit
        known = self._units.get(unit)
        if known is None:
            raise refuse("python.value", f"no unit is named {unit!r}. Use a name that was registered")
        return known[0]

    def _number(self, parameter: Union[str, int]) -> int:
        if not isinstance(parameter, str):
            return parameter
        number = self._parameters.get(parameter)
        if number is None:
            raise refuse("python.value", f"no parameter is named {parameter!r}. Use a name that was registered")
        return number

    @property
    def units(self) -> list[str]:
        """The names of the units, in the order of the forward pass."""
        return list(self._units)

    @property
    def parameters(self) -> list[str]:
        """The names of all parameters."""
        return list(self._parameters)

    def gather(self, unit: Union[str, int], *, backward: bool = False, stream: Any = None) -> Unit:
        """Gathers a whole unit and blocks until it is there. All ranks gather the same units in one order.

        ``with shard.gather(name) as values:`` releases it. backward: no rank needs it in this iteration any more then.
        stream: on a device, the CUDA stream that uses the unit and releases it: it waits, and the call does not block.
        """
        number = self._unit(unit)
        self._gather(number, stream)
        return Unit(self, number, list(self._units.values())[number][1], backward, stream)

    def parameter(self, parameter: Union[str, int]) -> Any:
        """A whole parameter as an array of its shape. Its unit is gathered; it is valid until that is released."""
        number = self._number(parameter)
        memory = self._parameter(number)
        return _results.over(self._forms[number].whole, memory, self._forms[number].shape)

    def gradient(self, parameter: Union[str, int]) -> Any:
        """The whole gradient of a parameter of a gathered unit: zeros at first, unless overwrite_gradients. It is valid until
        it is reduced.

        On a device the stream that gathered the unit writes the zeros.
        """
        number = self._number(parameter)
        memory = self._gradient(number)
        return _results.over(self._forms[number].whole, memory, self._forms[number].shape)

    def reduce_scatter(self, unit: Union[str, int], *, accumulate: bool = False, stream: Any = None) -> None:
        """Begins the reduction of a unit's gradients to the ranks' pieces, where it is added. Does not wait for it.

        All ranks reduce the same units in one order. accumulate: with several copies of the model, each copy keeps its
        own sum until the next reduction without it. stream: the CUDA stream that has written the gradients.
        """
        self._reduce_scatter(self._unit(unit), accumulate, stream)

    def finish(self, *, stream: Any = None) -> None:
        """Ends an iteration: all reductions are done then. All units are released.

        On a device `stream`, a CUDA stream, waits for them. The call blocks only with shards_on_host.
        """
        self._finish(stream)

    @contextlib.contextmanager
    def iteration(self, *, stream: Any = None) -> Iterator["Shard"]:
        """finish() at the end. If an exception leaves the block or finish(), the Shard ends on all ranks."""
        try:
            yield self
            self.finish(stream=stream)
        except BaseException:
            self._give_up()
            raise

    def piece(self, parameter: Union[str, int]) -> Piece:
        """This rank's part of a parameter. Change its values between finish and the next gather."""
        number = self._number(parameter)
        values, gradient, begin, _ = self._piece(number)
        form = self._forms[number]
        return Piece(
            _results.over(form.values, values, (-1,)),
            None if gradient is None else _results.over(form.gradient, gradient, (-1,)),
            begin,
        )

    def _gradient_type(self, name: str) -> Any:
        """The dtype of a parameter's reduced gradient, or None if it is no parameter."""
        number = self._parameters.get(name)
        return None if number is None else _name(self._forms[number].gradient.dtype)

    def boxes(self, states: Optional[Mapping[str, Any]] = None, *, prefix: str = "") -> dict[str, Box]:
        """This rank's parts of all parameters by their names, for Checkpoint and Replica, between finish and gather.

        states: arrays as long as the pieces, such as an optimizer's, by the names of parameters; None: the values.
        prefix: of the names in the checkpoint.
        """
        boxes = {}
        for name in self.parameters:
            values, _, begin = self.piece(name)
            shape = self._forms[self._number(name)].shape
            boxes[prefix + name] = Box(values if states is None else states[name], shape, begin=begin)
        return boxes

    def zero_gradients(self) -> None:
        """Drops the reduced gradients, so that the next reduction does not add to them."""
        self._zero_gradients()

    def reduced(self) -> bool:
        """Whether it has reduced gradients for a step: not in an iteration, and not after zero_gradients."""
        return self._reduced()

    def stats(self) -> Stats:
        """What was moved, and the memory on this rank."""
        return Stats(*self._stats())

    def abort(self) -> None:
        """Ends the object on all ranks with an error. From any thread."""
        self._abort()

    def close(self) -> None:
        """Frees the memory, or the last array over it does. Other ranks get an error if an iteration is open."""
        self._close()


def _pairs(named: Named) -> list[tuple[str, Any]]:
    return list(named.items()) if isinstance(named, Mapping) else list(named)


def _in_type(form: Any, dtype: Any) -> Any:
    if dtype is None:
        return form
    if isinstance(form, _results.DeviceArray):
        return _results.DeviceArray(None, form.shape, _name(dtype).split(".")[-1], form.device.id)
    if hasattr(form, "new_empty"):
        return form.new_empty((1,), dtype=dtype)
    if hasattr(form, "astype"):
        return form[:0].astype(dtype)  # not the number in it, which is not initialised
    raise refuse("python.value", "parameter_type and output_type are for arrays of numpy and torch")


def _name(dtype: Any) -> str:
    return getattr(dtype, "__name__", None) or str(dtype)
