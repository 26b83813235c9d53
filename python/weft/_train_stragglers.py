"""weft.train.Stragglers: the ranks of a training whose own work takes long."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Iterator

from . import _weft
from ._communicator import Communicator
from ._errors import refuse
from ._objects import _Training


class Stragglers(_Training, _weft.Stragglers):
    """Compares the times of the ranks' own work, and names slow ranks in the log of rank 0 as WARN.

    All ranks of comm make it with equal settings.

    interval: seconds from one report to the next, about. The first report comes after 10 steps.
    interval_steps: steps from one report to the next instead, if it is not 0.
    threshold: a rank with a score below it is a straggler. 0: none is.

    `with` closes it, or ends it on all ranks if an exception leaves the block. One thread at a time uses it; abort may
    come from any thread.
    """

    def __init__(
        self, comm: Communicator, *, interval: float = 60.0, interval_steps: int = 0, threshold: float = 0.75
    ) -> None:
        super().__init__(comm, interval, interval_steps, threshold)

    def step(self, seconds: float) -> bool:
        """Counts a step, whose own work took `seconds`; 0: it had none. All ranks call it. Whether there was a report.

        Leave out the time in which the rank waits for others, as in an all-reduce.
        """
        return self._step(seconds)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Times the block as the own work of a step, and counts the step."""
        begun = time.perf_counter()
        yield
        self.step(time.perf_counter() - begun)

    def report(self) -> None:
        """Compares the ranks now. All ranks call it."""
        self._report()

    def scores(self, reference: str = "fastest") -> list[float]:
        """Of the last report, by rank: the reference time divided by the rank's median; NaN: it had no time.

        reference: "fastest": the fastest rank. "own": the rank's own best so far.
        """
        if reference not in ("fastest", "own"):
            raise refuse("python.value", f'reference is "{reference}"; it must be "fastest" or "own"')
        return self._scores(reference == "own")

    def abort(self) -> None:
        """Ends the object on all ranks with an error. From any thread."""
        self._abort()

    def close(self) -> None:
        """Frees the object."""
        self._close()
