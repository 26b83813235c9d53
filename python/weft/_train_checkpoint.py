"""Checkpoints of training: weft.train.Checkpoint, weft.train.Replica and weft.train.Box."""

from __future__ import annotations

import contextlib
import operator
import os
from typing import Any, Iterable, Mapping, NamedTuple, Optional, Sequence, Union

from . import _results, _weft
from ._communicator import Communicator
from ._errors import Error, refuse
from ._objects import _Closing

Path = Union[str, "os.PathLike[str]"]
Named = Union[Mapping[str, Any], Iterable[tuple[str, Any]]]


class Box:
    """A part of a tensor: x is elements offsets[d] to offsets[d] + x.shape[d] of each dimension d of the whole.

    x: an array in host memory or on any CUDA device.
    shape: of the whole tensor; None: x is the whole.
    offsets: None: zeros.
    begin: in place of offsets: x, of any shape, is as many elements from this one on of the whole, row by row.
    """

    def __init__(
        self,
        x: Any,
        shape: Optional[Sequence[int]] = None,
        offsets: Optional[Sequence[int]] = None,
        *,
        begin: Optional[int] = None,
    ) -> None:
        own = _results.shape_of(x)
        self.x = x
        self.shape = own if shape is None else tuple(map(operator.index, shape))
        self.offsets = (0,) * len(self.shape) if offsets is None else tuple(map(operator.index, offsets))
        self.begin = None if begin is None else operator.index(begin)
        if begin is not None and offsets is not None:
            raise refuse("python.value", "a Box has offsets or begin, not both")

    def _entry(self, name: str) -> tuple[str, Any, list[int], list[int], Union[list[int], int]]:
        numbers = (*self.shape, *(self.offsets if self.begin is None else (self.begin,)))
        if min(numbers, default=0) < 0:
            raise refuse("python.value", f"shape and place of {name} are {numbers}; they must not be negative")
        place = list(self.offsets) if self.begin is None else self.begin
        return name, self.x, list(_results.shape_of(self.x)), list(self.shape), place


class StoredTensor(NamedTuple):
    """A tensor of a checkpoint."""

    shape: tuple[int, ...]
    dtype: str  #: as "float32"
    nbytes: int


class Contents(NamedTuple):
    """What a checkpoint holds."""

    ranks: int  #: that wrote it
    tensors: dict[str, StoredTensor]  #: by their names
    items: dict[str, bytes]  #: of all ranks
    own_items: dict[str, dict[int, bytes]]  #: by names and ranks


def checkpoint_contents(folder: Path) -> Contents:
    """The tensors and items of a complete checkpoint. It reads the metadata and items, and needs no communicator."""
    ranks, entries = _weft.checkpoint_contents(os.fsdecode(folder))
    contents = Contents(ranks, {}, {}, {})
    for name, rank, dtype, shape, nbytes, data in entries:
        if data is None:
            contents.tensors[name] = StoredTensor(tuple(shape), dtype, nbytes)
        elif rank < 0:
            contents.items[name] = data
        else:
            contents.own_items.setdefault(name, {})[rank] = data
    return contents


def _entries(tensors: Optional[Named], stream: Any) -> list[Any]:
    pairs = [] if tensors is None else tensors.items() if isinstance(tensors, Mapping) else tensors
    try:
        return [(*(each if isinstance(each, Box) else Box(each))._entry(name), stream) for name, each in pairs]
    except Exception as error:
        return [error]  # the binding raises it after the other ranks have their error


def _text(text: Any) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no str")
    return text


def _save_arguments(
    folder: Path,
    tensors: Optional[Named],
    items: Optional[Mapping[str, Any]] = None,
    own_items: Optional[Mapping[str, Any]] = None,
    background: bool = False,
    stream: Any = None,
) -> tuple[str, list[Any], list[tuple[str, Any, bool]], bool]:
    try:
        return os.fsdecode(folder), _entries(tensors, stream), _small(items, own_items), bool(background)
    except Exception as error:
        return "", [error], [], False  # the binding raises it after the other ranks have their error


def _small(items: Optional[Mapping[str, Any]], own_items: Optional[Mapping[str, Any]]) -> list[tuple[str, Any, bool]]:
    common = [(name, data, False) for name, data in (items or {}).items()]
    return common + [(name, data, True) for name, data in (own_items or {}).items()]


class Checkpoint(_Closing, _weft.Checkpoint):
    """Saves and loads the checkpoints of a job.

    A checkpoint is a folder that all hosts see. Each rank writes a safetensors file there. The file checkpoint.json is
    written last: with it the checkpoint is complete. All ranks of comm make the object, and the calls save, wait, load
    and export. A call that fails on one rank fails on all.

        checkpoint = weft.train.Checkpoint(comm)
        checkpoint.save("step-100", {"weight": Box(rows, shape=(1000, 64), offsets=(begin, 0)), "bias": bias},
                        items={"step": b"100"}, own_items={"random": state}, background=True)

    One thread at a time uses it; abort may come from any thread.
    """

    def __init__(self, comm: Communicator) -> None:
        super().__init__(comm)

    def save(
        self,
        folder: Path,
        tensors: Optional[Named] = None,
        *,
        items: Optional[Mapping[str, Any]] = None,
        own_items: Optional[Mapping[str, Any]] = None,
        background: bool = False,
        stream: Any = None,
    ) -> None:
        """Saves a checkpoint in a new folder.

        tensors: arrays or Boxes by their names; a plain array is a whole tensor. The boxes of all ranks cover each
        tensor. Equal boxes of several ranks are written once.
        items: small data, such as bytes, that is equal on all ranks. own_items: each rank's own.
        background: returns once the data is copied. wait() raises the errors.
        stream: the CUDA stream that has written the arrays on devices.
        """
        self._save(*_save_arguments(folder, tensors, items, own_items, background, stream))

    def load(self, folder: Path, tensors: Optional[Named] = None, *, stream: Any = None) -> None:
        """Reads arrays or Boxes of a complete checkpoint in place, also with another number of ranks.

        stream: the CUDA stream that uses the arrays on devices.
        """
        self._load(*_save_arguments(folder, tensors, stream=stream)[:2])

    def test(self) -> bool:
        """Whether no save is in progress on this rank."""
        return self._test()

    def wait(self) -> None:
        """Waits for the save in the background, and raises its error once."""
        self._wait()

    @property
    def ranks(self) -> int:
        """How many ranks wrote the checkpoint that was loaded last; 0: none was loaded."""
        return self._ranks()

    def item(self, name: str, rank: Optional[int] = None) -> bytes:
        """An item of the checkpoint that was loaded last. rank: whose own item; None: the one of all ranks."""
        if rank is not None and rank < 0:
            raise refuse("python.value", f"rank is {rank}; it must not be negative")
        return self._item(name, -1 if rank is None else rank)

    def export(self, folder: Path, file: Path, *, prefix: str = "") -> None:
        """Writes whole tensors of a checkpoint to one safetensors file.

        prefix: of the names that are exported. It is left out in the file.
        """
        try:
            names = (os.fsdecode(folder), os.fsdecode(file), _text(prefix))
        except Exception:
            with contextlib.suppress(Error):
                self._export("", "", "")  # the other ranks get its error
            raise
        self._export(*names)

    def abort(self) -> None:
        """Ends a call in progress on all ranks with an error. From any thread."""
        self._abort()

    def close(self) -> None:
        """Waits for a save in the background, and frees the object."""
        self._close()


class Replica(_Closing, _weft.Replica):
    """Copies of this rank's and other ranks' states in memory, for recovery without a file system.

    It outlives communicators: after a failure the processes that live on load through a new one.

        replica = weft.train.Replica(jump=ranks_on_a_host)
        replica.save(comm, step, {"weight": weight})
        step = replica.load(new_comm, {"weight": weight})   # new processes pass a new Replica

    jump: the distance of two ranks that keep each other's state.
    copies: how many ranks have each state, with its owner. The number of ranks is a multiple of jump * copies.
    """

    def __init__(self, jump: int, copies: int = 2) -> None:
        super().__init__(jump, copies)

    def save(
        self,
        comm: Communicator,
        version: int,
        tensors: Optional[Named] = None,
        *,
        items: Optional[Mapping[str, Any]] = None,
        own_items: Optional[Mapping[str, Any]] = None,
        stream: Any = None,
    ) -> None:
        """Copies this rank's arrays or Boxes into the memory of its group. Then older versions are freed.

        version: equal on all ranks, such as the step, and not smaller than those before.
        stream: the CUDA stream that has written the arrays on devices.
        """
        try:
            number = operator.index(version)
            if not 0 <= number < 2**64:
                raise refuse("python.value", f"version is {version}; it must be 0 to 2**64 - 1")
            arguments = (number, _entries(tensors, stream), _small(items, own_items))
        except Exception as error:
            arguments = (0, [error], [])  # the binding raises it after the other ranks have their error
        self._save(comm, *arguments)

    def load(self, comm: Communicator, tensors: Optional[Named] = None, *, stream: Any = None) -> int:
        """Reads arrays or Boxes of the newest whole version in place, and returns the version.

        stream: the CUDA stream that uses the arrays on devices.
        """
        return self._load(comm, _entries(tensors, stream))

    def item(self, name: str, *, per_rank: bool = False) -> bytes:
        """An item of the state that was loaded last. per_rank: of the rank with this rank's number."""
        return self._item(name, per_rank)

    def close(self) -> None:
        """Frees the copies."""
        self._close()
