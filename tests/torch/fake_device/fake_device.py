"""The device type "fakegpu" of torch: memory, streams and events of the fake CUDA driver."""

import os
import types

import torch

import fake_device_extension as _extension

Gate = _extension.Gate
Graph = _extension.Graph
synchronize = _extension.synchronize
streams_recorded = _extension.streams_recorded


def over(memory, device):
    """A tensor over an object with __cuda_array_interface__. The object must outlive it."""
    facts = memory.__cuda_array_interface__
    return _extension.over(facts["data"][0], facts["shape"][0], torch.device(device).index or 0)

NAME = "fakegpu"


def register():
    torch.utils.rename_privateuse1_backend(NAME)
    module = types.ModuleType(NAME)
    module.is_available = lambda: True
    module.is_initialized = lambda: True
    module._is_in_bad_fork = lambda: False
    module.device_count = _extension.device_count
    module.current_device = _extension.current_device
    module.set_device = lambda device: _extension.set_device(torch.device(device).index if not isinstance(device, int) else device)
    module.synchronize = lambda device=None: synchronize()
    module.Stream = lambda device=None, priority=0: torch.Stream(device=device or f"{NAME}:{_extension.current_device()}")
    module.Event = lambda enable_timing=False: torch.Event(NAME, enable_timing=enable_timing)
    module.stream = lambda stream: stream
    module.current_stream = lambda device=None: torch.accelerator.current_stream(device)
    module.default_stream = module.current_stream
    module.manual_seed_all = lambda seed: None
    module.get_rng_state = lambda device=None: torch.get_rng_state()
    module.set_rng_state = lambda state, device=None: torch.set_rng_state(state)
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    torch._register_device_module(NAME, module)
    torch.utils.generate_methods_for_privateuse1_backend()


register()
