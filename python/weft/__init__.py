"""Weft: collective communication between ranks on CPUs and GPUs.

    import numpy as np
    import weft

    comm = weft.init()                 # rank and size from the launcher
    x = np.full(4, comm.rank, np.float32)
    comm.all_reduce(x)                 # in place: every rank has the sum

A program starts with ``weft-run -n 4 python program.py``, or under mpirun, srun or torchrun.
docs/guide/python.md is a tutorial. The C interface's guide explains each subject in depth.
"""

from ._load import _weft as _weft
from ._errors import (
    CallError,
    Error,
    InternalError,
    InvalidArgumentError,
    InvalidUsageError,
    MismatchError,
    RemoteError,
    SystemError,
    TimeoutError,
    UnhandledCudaError,
)
from ._communicator import Communicator, init, init_all, unique_id
from ._group import Prepared, group, prepare
from ._objects import DeviceMemory, HostMemory, Reduction, Registration, Stream, Window
from . import train

__version__: str = _weft.__version__


def libweft_path() -> str:
    """The file of the loaded libweft.so."""
    return _weft.libweft_path()


def device_count() -> int:
    """The number of CUDA devices that this process sees; 0 without a driver."""
    return _weft.device_count()


def log_info(text: str) -> None:
    """Writes text to Weft's log, if the log shows INFO lines of the subsystem INIT."""
    _weft.log_info(text)


__all__ = [
    "CallError",
    "Communicator",
    "DeviceMemory",
    "Error",
    "HostMemory",
    "InternalError",
    "InvalidArgumentError",
    "InvalidUsageError",
    "MismatchError",
    "Prepared",
    "Reduction",
    "Registration",
    "RemoteError",
    "Stream",
    "UnhandledCudaError",
    "Window",
    "device_count",
    "group",
    "init",
    "init_all",
    "libweft_path",
    "log_info",
    "prepare",
    "train",
    "unique_id",
]
