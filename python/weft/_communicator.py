"""weft.Communicator, and the functions that make one."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence, Union

from . import _results, _weft
from ._errors import Error, refuse
from ._objects import Reduction, Registration, Window

Op = Union[str, Reduction]
Sizes = Sequence[int]
_BLOCK_POLICIES = {None: None, "default": 0, "zero": 1}  # WEFT_BLOCK_POLICY_*
_MEMORY = ("flag_block", "connection", "heap", "device", "total")  # by weftMemStat_t


def _settings(
    timeout_ms: Optional[int] = None,
    init_timeout_ms: Optional[int] = None,
    name: Optional[str] = None,
    algo: Optional[str] = None,
    deterministic: Optional[bool] = None,
    device: Union[int, bool, None] = None,
    min_blocks: Optional[int] = None,
    max_blocks: Optional[int] = None,
    launch_order_implicit: Optional[bool] = None,
    block_policy: Optional[str] = None,
) -> dict[str, Any]:
    if device is True:
        raise TypeError("device is True; it is the number of a CUDA device, False or None [argument.config]")
    return {
        "timeout_ms": timeout_ms,
        "init_timeout_ms": init_timeout_ms,
        "name": name,
        "algo": algo,
        "deterministic": deterministic,
        "device": -1 if device is False else device,  # WEFT_DEVICE_NONE
        "min_blocks": min_blocks,
        "max_blocks": max_blocks,
        "launch_order_implicit": launch_order_implicit,
        "block_policy": _block_policy(block_policy),
    }


def _block_policy(name: Optional[str]) -> Optional[int]:
    if name not in _BLOCK_POLICIES:
        raise refuse("argument.config", f"block_policy is {name!r}; it is default, zero or None")
    return _BLOCK_POLICIES[name]


class Communicator(_weft.Comm):
    """This process's membership in a group of ranks, made by weft.init, weft.init_all, split or shrink.

    Arrays are numpy's (also with ml_dtypes), torch's, cupy's and jax's, bytearray, array.array, memoryview: everything
    with the buffer protocol, ``__dlpack__`` or ``__cuda_array_interface__``. They are used without a copy, so they
    must be C-contiguous. dtypes: 8-, 32- and 64-bit integers, float16, bfloat16, float32, float64, float8_e4m3fn,
    float8_e5m2; bool as bytes. All arrays of a call have one dtype and one device.

    op: "sum", "prod", "max", "min", "avg", "band", "bor", "bxor", or a Reduction.
    out: the array for the result. Without it, calls whose result has x's size work in place, and others make an array.
    stream: None blocks on host memory. A Stream queues the call; the result is valid after ``stream.wait()``. Arrays
    on a device take a CUDA stream of torch, cupy or cuda.core, or its address; None is the legacy stream.

    A blocking call releases the GIL. Ctrl-C ends it within a second: it aborts the communicator on all ranks. If the
    program has a signal handler of its own, the second Ctrl-C does. One thread at a time uses a communicator; abort
    may come from any thread. After RemoteError, TimeoutError, MismatchError or SystemError of a call the communicator
    is dead: close it, and make a new one.
    """

    def __init__(self) -> None:
        super().__init__()

    def __repr__(self) -> str:
        return f"<weft.Communicator rank {self.rank} of {self.size}>" if self._open else "<weft.Communicator closed>"

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def rank(self) -> int:
        """This process's rank, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._size

    @property
    def device(self) -> int:
        """The number of this rank's CUDA device in this process. InvalidUsageError if it has none."""
        return self._device()

    # Collectives

    def all_reduce(self, x: Any, op: Op = "sum", *, out: Any = None, stream: Any = None) -> Any:
        """Reduces x across all ranks; every rank receives the same bits, in out or in x. Returns it."""
        return _weft.all_reduce(self, x, x if out is None else out, op, stream)

    def broadcast(self, x: Any, root: int = 0, *, out: Any = None, stream: Any = None) -> Any:
        """Copies x of rank `root` to out, or to x, of every rank. With out, other ranks may pass x=None."""
        return _weft.broadcast(self, x, x if out is None else out, root, stream)

    def reduce(self, x: Any, op: Op = "sum", root: int = 0, *, out: Any = None, stream: Any = None) -> Any:
        """Reduces x across all ranks; rank `root` receives the result in out, or in x. Other ranks get None."""
        result = _weft.reduce(self, x, x if out is None else out, op, root, stream)
        return result if self.rank == root else None

    def all_gather(self, x: Any, *, out: Any = None, stream: Any = None) -> Any:
        """Gathers x of all ranks on every rank, in rank order: out has x's elements for each rank."""
        if out is None:
            out = _results.for_each_rank(x, self.size)
        return _weft.all_gather(self, x, out, stream)

    def reduce_scatter(self, x: Any, op: Op = "sum", *, out: Any = None, stream: Any = None) -> Any:
        """Reduces x across all ranks; rank r receives part r. x has out's elements for each rank."""
        if out is None:
            out = _results.part(x, self.size)
        return _weft.reduce_scatter(self, x, out, op, stream)

    def all_to_all(self, x: Any, *, out: Any = None, stream: Any = None) -> Any:
        """Copies part q of rank p's x to part p of rank q's out, for all ranks. x and out are disjoint."""
        if out is None:
            out = _results.like(x, _results.shape_of(x))
        return _weft.all_to_all(self, x, out, stream)

    def gather(self, x: Any, root: int = 0, *, out: Any = None, stream: Any = None) -> Any:
        """Gathers x of all ranks on rank `root`, in rank order. Other ranks get None."""
        if out is None and self.rank == root:
            out = _results.for_each_rank(x, self.size)
        result = _weft.gather(self, x, out, root, stream)
        return result if self.rank == root else None

    def scatter(self, x: Any, root: int = 0, *, out: Any, stream: Any = None) -> Any:
        """Copies part r of rank `root`'s x to out of rank r. Other ranks pass x=None."""
        return _weft.scatter(self, x, out, root, stream)

    def barrier(self, *, stream: Any = None) -> None:
        """Ends when every rank has called it."""
        _weft.barrier(self, stream)

    # Collectives of uneven parts: counts and displacements are elements, one for each rank. Without displacements the
    # parts lie one behind the other.

    def all_gather_v(
        self, x: Any, counts: Sizes, *, out: Any = None, displacements: Optional[Sizes] = None, stream: Any = None
    ) -> Any:
        """Gathers counts[r] elements of each rank r on every rank."""
        if out is None:
            out = _results.like(x, (sum(counts),))
        return _weft.all_gather_v(self, x, out, counts, displacements, stream)

    def reduce_scatter_v(
        self, x: Any, counts: Sizes, op: Op = "sum", *, out: Any = None, stream: Any = None
    ) -> Any:
        """Reduces x across all ranks; rank r receives counts[r] elements. counts are equal on all ranks."""
        if out is None:
            out = _results.like(x, (counts[self.rank],))
        return _weft.reduce_scatter_v(self, x, out, counts, op, stream)

    def all_to_all_v(
        self,
        x: Any,
        send_counts: Sizes,
        receive_counts: Sizes,
        *,
        out: Any = None,
        send_displacements: Optional[Sizes] = None,
        receive_displacements: Optional[Sizes] = None,
        stream: Any = None,
    ) -> Any:
        """Sends send_counts[r] elements of x to each rank r, and receives receive_counts[r] from it."""
        if out is None:
            out = _results.like(x, (sum(receive_counts),))
        return _weft.all_to_all_v(
            self, x, send_counts, out, receive_counts, send_displacements, receive_displacements, stream
        )

    def all_to_all_v_device_counts(
        self,
        x: Any,
        send_counts: Any,
        send_displacements: Any,
        out: Any,
        receive_counts: Any,
        receive_displacements: Any,
        *,
        stream: Any,
    ) -> Any:
        """The same with 64-bit arrays of counts on the device, which a kernel reads in the stream's order.

        All arrays must stay until the call has run.
        """
        return _weft.all_to_all_v_device_counts(
            self, x, send_counts, send_displacements, out, receive_counts, receive_displacements, stream
        )

    def gather_v(
        self,
        x: Any,
        counts: Optional[Sizes] = None,
        root: int = 0,
        *,
        out: Any = None,
        displacements: Optional[Sizes] = None,
        stream: Any = None,
    ) -> Any:
        """Gathers counts[r] elements of each rank r on rank `root`. Other ranks need no counts and get None."""
        if out is None and counts is not None and self.rank == root:
            out = _results.like(x, (sum(counts),))
        result = _weft.gather_v(self, x, out, counts, displacements, root, stream)
        return result if self.rank == root else None

    def scatter_v(
        self,
        x: Any,
        counts: Optional[Sizes] = None,
        root: int = 0,
        *,
        out: Any,
        displacements: Optional[Sizes] = None,
        stream: Any = None,
    ) -> Any:
        """Copies counts[r] elements of rank `root`'s x to out of rank r. Other ranks pass x=None."""
        return _weft.scatter_v(self, x, counts, displacements, out, root, stream)

    # Messages

    def send(self, x: Any, peer: int, *, stream: Any = None) -> None:
        """Sends x to rank `peer`, whose next recv from this rank it meets. Returns when x may be reused."""
        _weft.send(self, x, peer, stream)

    def recv(self, out: Any, peer: int, *, stream: Any = None) -> Any:
        """Receives into out from rank `peer`. Size and dtype are the sender's. Returns out."""
        return _weft.recv(self, out, peer, stream)

    def send_recv(self, x: Any, target: int, out: Any, source: int, *, stream: Any = None) -> Any:
        """Sends x to rank `target` and receives into out from rank `source` at once. Returns out."""
        return _weft.send_recv(self, x, target, out, source, stream)

    # Windows

    def window(self, memory: Any) -> Window:
        """Makes memory part of a window that all ranks can access. All ranks call it; None is no memory.

        Fastest: memory of HostMemory.
        """
        return Window(self, memory)

    def signal(self, peer: int, *, index: int = 0, context: int = 0, stream: Any = None) -> None:
        """Sends a signal to rank `peer`, behind all earlier puts and signals of this rank to it."""
        _weft.signal(self, peer, index, context, stream)

    def wait_signal(
        self, peer: int, count: int = 1, *, index: int = 0, context: int = 0, stream: Any = None
    ) -> None:
        """Waits for `count` signals of rank `peer`. Everything that it put before is visible then."""
        _weft.wait_signals(self, [(peer, count, index, context)], stream)

    def wait_signals(self, signals: Sequence[tuple[int, int, int, int]], *, stream: Any = None) -> None:
        """Waits for several: (peer, count, index, context) of each."""
        _weft.wait_signals(self, list(signals), stream)

    # Reductions and memory

    def reduction(
        self, function: Callable[[memoryview, memoryview, memoryview], None], dtype: Any, *, commutative: bool = True
    ) -> Reduction:
        """Makes a reduction of a Python function for arrays in host memory.

        ``function(left, right, result)`` writes left[i] op right[i] to result[i]. The arguments are memoryviews of
        dtype, valid during the call; bfloat16 comes as uint16 bits and float8 as uint8. result may be left or right.
        The function must be associative and give the same bits on all ranks. An exception in it ends the call with
        InvalidUsageError on all ranks, and is that error's ``__cause__`` here.
        commutative: False gets the operands in rank order, rank 0 on the left; equal on all ranks.
        """
        return Reduction(self, function, dtype, commutative)

    def scaled_sum(self, scalar: Any) -> Reduction:
        """Makes a reduction that sums scalar_r * x_r. scalar: an array of one element with x's dtype."""
        return Reduction(self, scalar)

    def register(self, memory: Any) -> Registration:
        """Registers memory that calls use often: other processes of the host map device memory then."""
        return Registration(self, memory)

    # Derived communicators and the end

    def split(self, color: Optional[int], key: int = 0, **settings: Any) -> Optional["Communicator"]:
        """Makes a communicator of the ranks with this color, ordered by key. All ranks call it.

        color: at least 0; None: this rank gets no communicator. settings: as for weft.init.
        """
        child = Communicator()
        self._split(child, -1 if color is None else color, key, _settings(**settings))
        return None if color is None or color < 0 else child

    def shrink(self, excluded: Sequence[int], *, abort: bool = False, **settings: Any) -> "Communicator":
        """Makes a communicator without the ranks in `excluded`, which may be dead. Only the others call it.

        abort: True also takes a communicator that has failed, and ends its calls.
        """
        child = Communicator()
        self._shrink(child, list(excluded), abort, _settings(**settings))
        return child

    def finalize(self) -> None:
        """Waits until this rank's calls on device memory have ended. Only queries and close may follow."""
        self._finalize()

    def close(self) -> None:
        """Leaves and frees the communicator. It does not wait for other ranks. May be called again."""
        self._close()

    def abort(self) -> None:
        """Stops the communicator on all ranks, from any thread: calls raise RemoteError there."""
        self._abort()

    # Information and settings

    def async_error(self) -> Optional[Error]:
        """The error that has hit the communicator, as an exception that is not raised; None: there is none."""
        error: Optional[Error] = self._async_error()
        return error

    def set_call_config(
        self,
        *,
        timeout_ms: Optional[int] = None,
        algo: Optional[str] = None,
        channels: Optional[int] = None,
        priority: Optional[int] = None,
        min_blocks: Optional[int] = None,
        max_blocks: Optional[int] = None,
        block_policy: Optional[str] = None,
    ) -> None:
        """Sets what later calls ask for. Without arguments the communicator's own settings return.

        algo, channels, min_blocks, max_blocks and block_policy must be equal on all ranks. priority, blocks and
        block_policy, which is as in weft.init, are for device memory.
        """
        self._set_call_config(
            {
                "timeout_ms": timeout_ms,
                "algo": algo,
                "channels": channels,
                "priority": priority,
                "min_blocks": min_blocks,
                "max_blocks": max_blocks,
                "block_policy": _block_policy(block_policy),
            }
        )

    def explain(
        self,
        count: int,
        dtype: Any = "float32",
        *,
        collective: str = "all_reduce",
        op: str = "sum",
        root: int = 0,
    ) -> str:
        """The algorithms that can serve a collective of count elements, one a line: predicted time, choice, reason."""
        return self._explain(collective, count, dtype, _weft.op_number(op), root)

    def memory_bytes(self, kind: str = "total") -> int:
        """Bytes that this communicator holds on this rank: flag_block, connection, heap, device or total."""
        if kind not in _MEMORY:
            raise refuse("python.value", f"kind is {kind!r}; it must be one of {', '.join(_MEMORY)}")
        return self._memory_bytes(_MEMORY.index(kind))


def unique_id() -> bytes:
    """Makes an id for one communicator: 128 bytes that hold a secret. One rank sends it to all others."""
    return _weft.unique_id()


def init(
    *,
    rank: Optional[int] = None,
    size: Optional[int] = None,
    unique_id: Optional[bytes] = None,
    timeout_ms: Optional[int] = None,
    init_timeout_ms: Optional[int] = None,
    name: Optional[str] = None,
    algo: Optional[str] = None,
    deterministic: Optional[bool] = None,
    device: Union[int, bool, None] = None,
    min_blocks: Optional[int] = None,
    max_blocks: Optional[int] = None,
    launch_order_implicit: Optional[bool] = None,
    block_policy: Optional[str] = None,
) -> Communicator:
    """Joins a communicator, and returns when all ranks have joined. In a group it is open after the group.

    Without rank, size and unique_id the launcher's environment describes it: weft-run, mpirun, srun, torchrun and
    others. Without a launcher it has one rank. All ranks call it equally often.

    unique_id: of weft.unique_id() on one rank. timeout_ms: a call without progress for this long fails; 0 is never.
    init_timeout_ms: the same for init, split and shrink. name: shown in logs and errors. algo, deterministic: as
    WEFT_ALGO and WEFT_DETERMINISTIC; rank 0's value counts. device: the number of this rank's CUDA device, or False for
    none; None is the current one. min_blocks, max_blocks: as WEFT_GPU_MIN_BLOCKS and WEFT_GPU_BLOCKS, blocks of a
    kernel at least and at most; launch_order_implicit: as WEFT_GPU_LAUNCH_ORDER; block_policy: "zero" as 1 of
    WEFT_GPU_BLOCK_POLICY, or "default"; rank 0's values count.
    """
    settings = _settings(
        timeout_ms,
        init_timeout_ms,
        name,
        algo,
        deterministic,
        device,
        min_blocks,
        max_blocks,
        launch_order_implicit,
        block_policy,
    )
    comm = Communicator()
    if rank is None and size is None and unique_id is None:
        comm._init_from_environment(settings)
    elif rank is None or size is None or unique_id is None:
        raise TypeError("weft.init() takes rank, size and unique_id together, or none of them")
    else:
        comm._init_rank(size, unique_id, rank, settings)
    return comm


def init_all(size: int, devices: Optional[Sequence[int]] = None) -> list[Communicator]:
    """Makes `size` communicators in this process, ranks 0 to size - 1. One thread drives each, or one in a group.

    devices: the CUDA device of each rank; None: ranks without a device.
    """
    comms = [Communicator() for _ in range(size)]
    _weft.init_all(comms, None if devices is None else list(devices))
    return comms
