"""The backend "weft" of torch.distributed.

    import torch.distributed as dist

    dist.init_process_group("weft")      # or "cpu:weft,cuda:nccl", "cpu:gloo,cuda:weft"

torch finds the backend by an entry point of the package, so no import is needed. Import weft.torch for the settings of a
group: ``dist.init_process_group("weft", pg_options=weft.torch.Options(deterministic=True))``.
docs/guide/pytorch.md explains what the backend does and which settings it honours.
"""

import atexit
import warnings
from typing import Any

import torch.distributed

from ._binary import load as _load

_backend = _load()
Options = _backend.Options

__all__ = ["Options", "register"]


def _make(parameters: Any, options: Any) -> Any:
    if options is None:
        options = Options()
    elif not isinstance(options, Options):
        raise TypeError(
            f"pg_options is of {type(options).__module__}.{type(options).__name__}; the backend weft takes "
            "weft.torch.Options [option.value]"
        )
    return _backend.make(
        parameters.store,
        parameters.group_rank,
        parameters.group_size,
        options,
        parameters.timeout,
        parameters.group_id,
        parameters.global_ranks_in_group,
        getattr(parameters, "enable_reconfigure", False),
    )


def _left_batch(name: str, calls: int) -> None:
    """The backend calls this when an exception left dist._coalescing_manager() of the group `name`.

    torch would put later collectives of the group into the list of the lost batch, where they never run."""
    lists = torch.distributed.distributed_c10d._world.pg_coalesce_state
    for group in [group for group in lists if group.group_name == name]:
        calls += len(lists.pop(group))
    if calls:
        warnings.warn(
            f"weft: an exception left a coalesced batch of the process group {name} before its end; its {calls} "
            "collectives do not run on this rank, and other ranks may wait for them",
            RuntimeWarning,
            stacklevel=2,
        )


def register() -> None:
    """Registers the backend. torch calls this for the entry point; a second call changes nothing."""
    if not hasattr(torch.distributed.Backend, "WEFT"):
        torch.distributed.Backend.register_backend("weft", _make, extended_api=True, devices=["cpu", "cuda"])


register()
# A program may end without destroy_process_group. Threads and communicators must end before the interpreter does.
atexit.register(_backend.shut_all_down)
