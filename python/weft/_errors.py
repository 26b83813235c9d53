"""Exceptions: one class for each error code of the C interface."""

from __future__ import annotations

import builtins
from typing import Optional

from . import _weft

# Misuse that this package finds before the library is called: id to (meaning, remedy).
_OWN = {
    "python.buffer": (
        "An argument has no memory that Weft can use.",
        "Pass an object with the buffer protocol, __dlpack__ or __cuda_array_interface__.",
    ),
    "python.closed": (
        "A communicator, stream, window, reduction or prepared group is used after its end, or before it was made.",
        "Keep the object open for as long as it is used, or make a new one.",
    ),
    "python.device": (
        "The arrays of a call lie on different devices, or on one that Weft does not use.",
        "Move them to one device.",
    ),
    "python.dtype": (
        "The dtype is none of Weft's, or the arrays of a call have different ones.",
        "Convert the array, or pass a view with another dtype.",
    ),
    "python.group": (
        "A group is opened or ended at a wrong place.",
        "Nest `with weft.group()` blocks; weft.prepare() is the outermost one.",
    ),
    "python.libweft": (
        "The package was built for another version of libweft.so than the one that was loaded.",
        "Remove the other one from LD_LIBRARY_PATH or LD_PRELOAD.",
    ),
    "python.out": (
        "The call cannot make an array for its result.",
        "Pass one by out=.",
    ),
    "python.read-only": (
        "The call writes to memory that is read-only.",
        "Pass writable memory by out=.",
    ),
    "python.reduction": (
        "The argument op is no reduction.",
        "Pass a name as sum, or a reduction that the communicator made.",
    ),
    "python.size": (
        "The number of elements of an array, or of a list, does not fit the call.",
        "Correct the sizes that the sentence names.",
    ),
    "python.stream": (
        "The argument stream is no stream.",
        "Pass a weft.Stream for host memory, or a CUDA stream.",
    ),
    "python.strides": (
        "An array is not C-contiguous.",
        "Pass a contiguous copy.",
    ),
    "python.sub-interpreter": (
        "The package was imported in a sub-interpreter.",
        "Import it in the main interpreter.",
    ),
    "python.value": (
        "An argument is none of the values that the call takes.",
        "Pass one of those that the sentence lists.",
    ),
    "python.unique-id": (
        "A unique id has the wrong length.",
        "Pass the bytes that weft.unique_id() returned on one rank.",
    ),
}


class Error(RuntimeError):
    """A failed call. ``str(error)`` is the library's sentence, which ends with the id in brackets."""

    id: str  #: as "mismatch.count"; stable, unlike the sentence
    rank: Optional[int]  #: the rank that failed or made the wrong call; None: unknown
    peer: Optional[int]  #: the other rank concerned; None: none, or unknown
    operation: Optional[str]  #: as "all_reduce"; None: unknown
    sequence: Optional[int]  #: of the operation on its communicator, from 1 on; None: unknown
    code: int  #: weftResult_t

    def __init__(self, sentence: str = "") -> None:
        super().__init__(sentence)
        self.id = ""
        self.rank = self.peer = self.operation = self.sequence = None
        self.code = 0

    @property
    def meaning(self) -> str:
        """What an error of this id means."""
        return _texts(self.id)[0]

    @property
    def remedy(self) -> str:
        """What to do against an error of this id."""
        return _texts(self.id)[1]


class UnhandledCudaError(Error):
    """A CUDA call failed."""


class SystemError(Error):
    """The operating system refused memory, a descriptor or a socket."""


class InternalError(Error):
    """A bug in Weft: please report the text."""


class InvalidArgumentError(Error, ValueError):
    """An argument is wrong; nothing was done."""


class InvalidUsageError(Error):
    """The call is wrong at this place: a second thread, an open group, a child of fork."""


class RemoteError(Error):
    """Another rank died, left or aborted."""


class TimeoutError(Error, builtins.TimeoutError):
    """No progress before the deadline; the text names the late ranks."""


class MismatchError(Error):
    """The ranks' calls differ; the text names both."""


_CLASSES = {
    1: UnhandledCudaError,
    2: SystemError,
    3: InternalError,
    4: InvalidArgumentError,
    5: InvalidUsageError,
    6: RemoteError,
    8: TimeoutError,
    9: MismatchError,
}


class CallError:
    """A failed call of a group: its number from 0, in the order of the calls, and its error."""

    def __init__(self, call: int, error: Error) -> None:
        self.call = call
        self.error = error

    def __repr__(self) -> str:
        return f"CallError(call={self.call}, error={self.error!r})"


def _texts(identifier: str) -> tuple[str, str]:
    if identifier in _OWN:
        return _OWN[identifier]
    from ._error_texts import TEXTS

    return TEXTS.get(identifier, ("", ""))


def make(
    code: int,
    sentence: str,
    identifier: str,
    rank: int,
    peer: int,
    operation: Optional[str],
    sequence: int,
    cause: Optional[BaseException],
) -> Error:
    """The exception of a failure; called by the extension."""
    error = _CLASSES.get(code, Error)(sentence)
    error.code = code
    error.id = identifier
    error.rank = rank if rank >= 0 else None
    error.peer = peer if peer >= 0 else None
    error.operation = operation
    error.sequence = sequence or None
    error.__cause__ = cause
    return error


def refuse(identifier: str, sentence: str, code: int = 4) -> Error:
    """The exception for misuse that the Python part of the package finds: InvalidArgumentError, unless code is 5."""
    return make(code, f"{sentence} [{identifier}]", identifier, -1, -1, None, 0, None)


_weft.set_error_factory(make)
