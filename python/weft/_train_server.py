"""weft.train.ParameterServer: asynchronous training by servers and workers."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional, Union

from . import _results, _weft
from ._communicator import Communicator
from ._errors import refuse
from ._objects import _Training

Named = Union[Mapping[str, Any], Iterable[tuple[str, Any]]]


class ServerStats(NamedTuple):
    """Counters of a ParameterServer on this rank."""

    steps: int  #: a server: updates so far. A worker: those that its newest pull had seen
    applied: int  #: a server: gradients that counted. A worker: its pushes
    dropped: int  #: a server: gradients that came too late
    slowest_clock: int  #: a worker: the pushes of the slowest worker at its newest pull
    largest_lead: int  #: a server: the most steps that a worker that pulled was ahead of the slowest one


class ParameterServer(_Training, _weft.ParameterServer):
    """Parameters that servers keep in host memory. Workers push gradients to them and pull parameters from them.

    All ranks of comm make it with the same names, shapes, dtypes and settings. Then all have the values of rank 0. It
    keeps the arrays, which may lie on a CUDA device; ranks may differ in that. Ranks 0 to servers - 1 are servers: they call serve. The others are workers.

    gradients: a worker's arrays, one for each parameter.
    learning_rate: of SGD on the servers. update: a function in its place, of a name and a gradient, a read-only array.
    It changes this server's parameter of that name, on servers; workers pass any function. It needs arrays of host memory.
    staleness: a worker may be so many steps ahead of the slowest one; None: any number.
    accepted: the first so many gradients of a step count, later ones are dropped; 0: each one counts.
    timeout_ms: a pull that waits for another worker for this long fails on all ranks; 0: never.

    `with` closes it, or ends it on all ranks if an exception leaves the block. One thread at a time uses it; abort may
    come from any thread.
    """

    def __init__(
        self,
        comm: Communicator,
        parameters: Named,
        *,
        gradients: Optional[Mapping[str, Any]] = None,
        servers: int = 1,
        learning_rate: float = 0.0,
        update: Optional[Callable[[str, Any], None]] = None,
        staleness: Optional[int] = None,
        accepted: int = 0,
        timeout_ms: int = 600_000,
    ) -> None:
        pairs = list(parameters.items()) if isinstance(parameters, Mapping) else list(parameters)
        own = gradients or {}
        self._numbers = {name: number for number, (name, _) in enumerate(pairs)}
        settings = {
            "servers": servers,
            "learning_rate": learning_rate,
            "staleness": staleness,
            "accepted": accepted,
            "timeout_ms": timeout_ms,
        }
        called = None
        if update is not None:
            function = update

            def called(number: int, gradient: bytes) -> None:
                name, x = pairs[number]
                function(name, _results.over(x, gradient, _results.shape_of(x)))

        super().__init__(comm, [(name, x, own.get(name)) for name, x in pairs], settings, called)

    def serve(self) -> None:
        """Of a server: serves the workers until all have finished. Its own parameters are new then: owner."""
        self._serve()

    def push(self, *, stream: Any = None) -> None:
        """Of a worker: sends its gradients, and counts its clock up. Does not wait for the update.

        stream: on a device, the CUDA stream that has written the gradients; the call waits for them.
        """
        self._push(stream)

    def pull(self, *, stream: Any = None) -> None:
        """Of a worker: gets the parameters, as soon as staleness or accepted allow it.

        stream: on a device, the CUDA stream that uses the parameters.
        """
        self._pull(stream)

    def finish(self) -> None:
        """Of a worker: no more calls follow, and no other worker waits for it."""
        self._finish()

    def owner(self, parameter: Union[str, int]) -> int:
        """The server that keeps the parameter."""
        if isinstance(parameter, str):
            if parameter not in self._numbers:
                raise refuse("python.value", f"no parameter is named {parameter!r}. Use a name that was registered")
            parameter = self._numbers[parameter]
        return self._owner(parameter)

    def stats(self) -> ServerStats:
        """The counters of this rank."""
        return ServerStats(*self._stats())

    def abort(self) -> None:
        """Ends the object on all ranks with an error. From any thread."""
        self._abort()

    def close(self) -> None:
        """Ends the object. Other ranks get an error if this worker has not finished."""
        self._close()
