"""Arrays for results: of the library that made the argument, which is never imported here."""

from __future__ import annotations

import sys
from typing import Any

from ._errors import refuse


def shape_of(x: Any) -> tuple[int, ...]:
    shape = getattr(x, "shape", None)
    if shape is None:
        # bytearray, array.array: one dimension.
        return (len(x),)
    return tuple(shape)


def like(x: Any, shape: tuple[int, ...]) -> Any:
    """A new array of x's dtype, device and library. bytearray, array.array and memoryview give a memoryview."""
    # Also of the classes that x's class is derived from.
    libraries = [each.__module__.split(".")[0] for each in type(x).__mro__]
    if "torch" in libraries:
        return x.new_empty(shape)
    for library in ("numpy", "cupy"):
        if library in libraries:
            return sys.modules[library].empty(shape, x.dtype)
    if any(each.startswith("jax") for each in libraries):
        raise refuse("python.out", "arrays of jax are immutable, so the result needs other memory. Pass out=")
    try:
        view = memoryview(x)
    except TypeError:
        raise refuse(
            "python.out", f"no array for the result can be made from type {type(x).__name__}. Pass out="
        ) from None
    elements = 1
    for length in shape:
        elements *= length
    made = memoryview(bytearray(elements * view.itemsize))
    return made.cast(view.format) if elements else made  # type: ignore[call-overload]


def over(x: Any, memory: Any, shape: tuple[int, ...]) -> Any:
    """An array of x's dtype and library over memory with the buffer protocol. Other libraries give a memoryview."""
    libraries = [each.__module__.split(".")[0] for each in type(x).__mro__]
    if "torch" in libraries:
        if not len(memoryview(memory)):  # torch refuses empty memory
            return like(x, tuple(max(length, 0) for length in shape))
        return sys.modules["torch"].frombuffer(memory, dtype=x.dtype).view(shape)
    if "numpy" in libraries:
        return sys.modules["numpy"].frombuffer(memory, x.dtype).reshape(shape)
    view = memoryview(memory)
    form = getattr(x, "format", None) or getattr(x, "typecode", None)
    return view.cast(form) if form and len(view) else view


def for_each_rank(x: Any, ranks: int) -> Any:
    """For a result with x's elements for each rank: one more dimension in front."""
    return like(x, (ranks, *shape_of(x)))


def part(x: Any, ranks: int) -> Any:
    """For the part of one rank: the first dimension is divided by the number of ranks."""
    shape = shape_of(x)
    if not shape or shape[0] % ranks:
        raise refuse(
            "python.size",
            f"x has shape {shape}, whose first dimension is no multiple of {ranks} ranks. "
            "Pass out=, or use reduce_scatter_v",
        )
    return like(x, (shape[0] // ranks, *shape[1:]))
