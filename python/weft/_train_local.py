"""weft.train.Local: training whose ranks step alone and communicate rarely."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Optional, Sequence, Union

from . import _weft
from ._communicator import Communicator
from ._errors import refuse
from ._objects import _Training

Named = Union[Mapping[str, Any], Iterable[tuple[str, Any]]]


class Local(_Training, _weft.Local):
    """Parameters that each rank trains alone, and the rule by which the ranks communicate.

    All ranks of comm make it with the same names, shapes, dtypes and settings. Then all have the values of rank 0. It
    keeps the arrays. They are numpy's or torch's, or have the buffer protocol. On a CUDA device they are torch's or cupy's,
    or have ``__cuda_array_interface__``.

    period: steps between two reductions of one parameter.
    method: "average": Local SGD, the parameters are averaged. "diloco": the changes are the gradients of an outer SGD.
    warmup: "average" begins at this step, from 0. Before it ``accumulates`` is false: average the gradients.
    fragments, fragment_of: "diloco" sends the model in parts, in turn. fragment_of has the part of each parameter.
    delay: "diloco" uses a result so many steps later; the reduction runs in the background meanwhile.
    learning_rate, momentum: of the outer SGD with Nesterov momentum.
    mix: "diloco": the share of the local values in the new ones.

    `with` closes it, or ends it on all ranks if an exception leaves the block. One thread at a time uses it; abort may
    come from any thread.
    """

    def __init__(
        self,
        comm: Communicator,
        parameters: Named,
        *,
        period: int,
        method: str = "average",
        warmup: int = 0,
        fragments: int = 1,
        fragment_of: Optional[Sequence[int]] = None,
        delay: int = 0,
        learning_rate: float = 0.7,
        momentum: float = 0.9,
        mix: float = 0.0,
    ) -> None:
        entries: list[Any]
        try:
            pairs = list(parameters.items()) if isinstance(parameters, Mapping) else list(parameters)
            self._names = [name for name, _ in pairs]
            entries = [(name, x, None) for name, x in pairs]
        except Exception as error:
            entries = [error]  # the binding raises it after the other ranks have their error
        settings = {
            "outer": method == "diloco",
            "period": period,
            "warmup": warmup,
            "fragments": fragments,
            "fragment_of": fragment_of,
            "delay": delay,
            "learning_rate": learning_rate,
            "momentum": momentum,
            "mix": mix,
        }
        if method not in ("average", "diloco"):
            settings["period"] = 0  # fails on all ranks
        super().__init__(comm, entries, settings)

    def step(self, *, stream: Any = None) -> bool:
        """Ends a training step: call it after each step of the optimizer. Whether parameters have new values.

        stream: on a device, the CUDA stream that has changed the parameters and uses them next.
        """
        return self._step(stream)

    @property
    def accumulates(self) -> bool:
        """Whether the next step takes this rank's own gradients: ``ddp.iteration(accumulate=local.accumulates)``."""
        return self._accumulates()

    @property
    def steps(self) -> int:
        """How often step was called."""
        return self._steps()

    def state_dict(self) -> dict[str, Any]:
        """A copy of the state besides the parameters, for a checkpoint. Waits for a reduction in progress.

        For each name (anchor, momentum, reduced): bytes of float32, or float64 for float64 parameters.
        """
        state = {name: self._state(number) for number, name in enumerate(self._names)}
        return {"steps": self.steps, "parameters": state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from state_dict(). All ranks call it with the state of one step, and restore their parameters."""
        parts = state["parameters"]
        if list(parts) != self._names:
            raise refuse("python.value", "the state has other parameters. Load the state of this model")
        self._restore(state["steps"])
        for number, name in enumerate(self._names):
            self._set_state(number, *parts[name])

    def abort(self) -> None:
        """Ends the object on all ranks with an error. From any thread."""
        self._abort()

    def close(self) -> None:
        """Waits for a reduction in progress and frees the state."""
        self._close()
