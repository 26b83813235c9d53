"""Streams, windows, reductions, registrations and memory."""

from __future__ import annotations

from typing import Any, Callable, Optional, TypeVar

from . import _weft

_Self = TypeVar("_Self", bound="_Closing")


class _Closing:
    """`with` closes the object, unless an exception leaves the block: then this could wait for other ranks."""

    __slots__ = ()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, kind: Optional[type], *_: object) -> None:
        if kind is None:
            self.close()

    def close(self) -> None:
        raise NotImplementedError


class _Training(_Closing):
    """An exception in the block ends the object on all ranks, which would wait for this one."""

    __slots__ = ()
    _give_up: Callable[[], None]

    def __exit__(self, kind: Optional[type], *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._give_up()


class Stream(_Closing, _weft.HostStream):
    """A queue for calls on host memory, with a thread that carries them out in order.

    A call with ``stream=`` checks its arguments and returns. The stream keeps the arrays alive until the call is done;
    do not read or write them before. CUDA arrays take a CUDA stream of torch, cupy or cuda.core instead.

    priority: 0, the highest, to 19: the nice value of the stream's thread.
    """

    def __init__(self, priority: int = 0) -> None:
        super().__init__(priority)

    def mark(self) -> int:
        """How many calls the stream was given so far; a group is one call."""
        return self._mark()

    def done(self, mark: Optional[int] = None) -> bool:
        """Whether the calls up to the mark are done; None: all so far. Raises their first error, once."""
        return self._done(_weft.ALL if mark is None else mark)

    def wait(self, mark: Optional[int] = None, timeout_ms: Optional[int] = None) -> None:
        """Blocks until the calls up to the mark are done; None: all so far. Raises their first error, once.

        Ctrl-C ends the wait and leaves the calls in the stream. TimeoutError: wait again.
        """
        self._wait(_weft.ALL if mark is None else mark, -1 if timeout_ms is None else timeout_ms)

    def close(self) -> None:
        """Waits for all calls and ends the stream."""
        self._close()


class Reduction(_Closing, _weft.UserReduction):
    """A reduction made by Communicator.reduction or Communicator.scaled_sum. Pass it as ``op=``."""

    def close(self) -> None:
        """Frees the reduction. The end of the communicator frees it, too."""
        self._close()


class Registration(_Closing, _weft.Registration):
    """A registered buffer: Communicator.register."""

    def close(self) -> None:
        """Ends the registration. After TimeoutError the buffer must stay, and the call may be repeated."""
        self._close()


class Window(_Closing, _weft.Window):
    """Memory that all ranks read and write: Communicator.window.

    Offsets are bytes from the beginning of the peer's part. A put is complete at the peer when the peer has waited for
    a later signal of this rank, or has closed the window.
    """

    def put(self, x: Any, peer: int, offset_bytes: int = 0, *, stream: Any = None) -> None:
        """Writes x to the part of rank `peer`. Returns when x may be reused."""
        self._put(x, peer, offset_bytes, stream)

    def put_signal(
        self, x: Any, peer: int, offset_bytes: int = 0, *, index: int = 0, context: int = 0, stream: Any = None
    ) -> None:
        """Writes x as put does, then sends signal `index` (0 to 15) of `context` (0 to 3) to the peer."""
        self._put_signal(x, peer, offset_bytes, index, context, stream)

    def get(self, out: Any, peer: int, offset_bytes: int = 0, *, stream: Any = None) -> Any:
        """Reads the part of rank `peer` into out and returns it. It sees what this rank has put there before."""
        return self._get(out, peer, offset_bytes, stream)

    @property
    def address(self) -> int:
        """The address of this rank's part."""
        return self._address

    def close(self) -> None:
        """Ends the window. Blocks until all ranks have called it and every put has arrived.

        A window that is not closed keeps its memory until the communicator has ended.
        """
        self._close()


HostMemory = _weft.HostMemory
DeviceMemory = _weft.DeviceMemory
