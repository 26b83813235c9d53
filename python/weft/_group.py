"""Groups and prepared calls."""

from __future__ import annotations

from typing import Optional

from . import _weft
from ._errors import CallError, refuse


class group:
    """Calls in ``with weft.group():`` begin together; the end of the block carries them out.

        with weft.group():
            comm.send(mine, right)
            comm.recv(theirs, left)

    Groups nest: the outermost end does the work, and blocks unless the calls have streams. If an exception leaves the
    outermost block, its calls are not carried out; the other ranks still wait for them, so abort the communicator.
    Results are valid after the block.
    """

    def __enter__(self) -> "group":
        _weft.group_start()
        return self

    def __exit__(self, kind: Optional[type], value: object, traceback: object) -> None:
        if kind is None:
            _weft.group_end()
        else:
            _weft.group_discard()

    @staticmethod
    def errors() -> list[CallError]:
        """The failed calls of the group that this thread ended last."""
        return [CallError(call, error) for call, error in _weft.group_errors()]


class Prepared:
    """Calls that weft.prepare kept. All ranks start theirs in one order with their other calls."""

    _calls: Optional[_weft.PreparedCalls] = None

    def start(self) -> None:
        """Carries the calls out, as the end of their group would; inside an open group they become part of it."""
        if self._calls is None:
            raise refuse("python.group", "the calls are prepared at the end of their `with` block. Start them there", 5)
        self._calls._start()

    def close(self) -> None:
        """Frees the calls and their arrays."""
        if self._calls is not None:
            self._calls._close()


class prepare:
    """Calls in ``with weft.prepare() as calls:`` are checked once, and carried out by each ``calls.start()``.

        with weft.prepare() as calls:
            comm.all_reduce(gradients)
        for step in range(100):
            ...
            calls.start()

    Their arrays stay alive until the object ends.
    """

    def __enter__(self) -> Prepared:
        _weft.group_start()
        self._prepared = Prepared()
        return self._prepared

    def __exit__(self, kind: Optional[type], value: object, traceback: object) -> None:
        if kind is None:
            self._prepared._calls = _weft.PreparedCalls()
        else:
            _weft.group_discard()
