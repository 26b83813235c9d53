"""Arrays for results: of the library that made the argument, which is never imported here."""

from __future__ import annotations

import struct
import sys
from typing import Any, NamedTuple, Optional

from ._errors import refuse


def shape_of(x: Any) -> tuple[int, ...]:
    shape = getattr(x, "shape", None)
    if shape is None and hasattr(x, "__cuda_array_interface__"):
        return tuple(x.__cuda_array_interface__["shape"])
    if shape is None:
        try:
            return memoryview(x).shape  # bytearray, array.array and arrays of ctypes
        except TypeError:
            return (len(x),)  # no array: the call refuses it
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
    return _cast(bytearray(elements * view.itemsize), view.format, view.itemsize)


def _cast(memory: Any, form: str, itemsize: Optional[int] = None) -> memoryview:
    """A memoryview of memory with elements of this format."""
    # ctypes marks the byte order of its formats, which cast() refuses.
    letter = form.lstrip("@=<" if sys.byteorder == "little" else "@=>!")
    try:
        size = struct.calcsize(letter)
        if itemsize not in (None, size):
            raise ValueError
        # cast() refuses memory of no element.
        if not len(memory):
            return memoryview(bytearray(size)).cast(letter)[:0]  # type: ignore[call-overload]
        return memoryview(memory).cast(letter)  # type: ignore[call-overload]
    except (ValueError, struct.error):
        raise refuse("python.out", f"no array for the result can be made of format '{form}'. Pass out=") from None


class Device(NamedTuple):
    """A CUDA device by its number in this process."""

    id: int


class DeviceArray:
    """Memory of a CUDA device as an array, for libraries that are not known here: cupy.asarray, numba.cuda.as_cuda_array
    and torch.as_tensor take it without a copy, and so do all calls of weft.

    shape; dtype, the name of it; device.id, the number of its device.
    """

    _forms = {"float16": "<f2", "float32": "<f4", "float64": "<f8", "bfloat16": "<V2"}

    def __init__(self, memory: Any, shape: tuple[int, ...], dtype: str, device: int) -> None:
        self._memory = memory
        self.shape = shape
        self.dtype = dtype
        self.device = Device(device)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self._memory.__cuda_array_interface__, "shape": self.shape, "typestr": self._forms[self.dtype]}


def form_of(x: Any, device: Optional[int], dtype: str) -> Any:
    """An array of x's library and dtype, for over(). device: None in host memory."""
    libraries = [each.__module__.split(".")[0] for each in type(x).__mro__]
    if device is None or "torch" in libraries or "cupy" in libraries:
        return like(x, (1,))
    return DeviceArray(None, (1,), dtype, device)


def _over_device(x: Any, memory: Any, shape: tuple[int, ...]) -> Any:
    libraries = [each.__module__.split(".")[0] for each in type(x).__mro__]
    if not len(memory) and not isinstance(x, DeviceArray):  # there is no memory to take
        return like(x, tuple(max(length, 0) for length in shape))
    if "torch" in libraries:
        return sys.modules["torch"].as_tensor(memory, device=x.device).view(x.dtype).view(shape)
    if "cupy" in libraries:
        return sys.modules["cupy"].asarray(memory).view(x.dtype).reshape(shape)
    elements = len(memory) // int(DeviceArray._forms[x.dtype][-1])
    return DeviceArray(memory, (elements,) if shape == (-1,) else shape, x.dtype, x.device.id)


def over(x: Any, memory: Any, shape: tuple[int, ...]) -> Any:
    """An array of x's dtype and library over memory with the buffer protocol, or of a device. Other libraries give a
    memoryview, or a DeviceArray."""
    if hasattr(memory, "__cuda_array_interface__"):
        return _over_device(x, memory, shape)
    libraries = [each.__module__.split(".")[0] for each in type(x).__mro__]
    if "torch" in libraries:
        if not len(memoryview(memory)):  # torch refuses empty memory
            return like(x, tuple(max(length, 0) for length in shape))
        return sys.modules["torch"].frombuffer(memory, dtype=x.dtype).view(shape)
    if "numpy" in libraries or "cupy" in libraries:  # cupy needs numpy
        return sys.modules["numpy"].frombuffer(memory, x.dtype).reshape(shape)
    view = memoryview(memory)
    if isinstance(x, DeviceArray):
        code = {"float16": "e", "float32": "f", "float64": "d"}.get(x.dtype)
        return _cast(view, code) if code else view
    try:
        form = memoryview(x).format  # memoryview, array.array and arrays of ctypes
    except TypeError:
        form = None
    return _cast(view, form) if form else view


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
