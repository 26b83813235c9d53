"""train_deepspeed.py: DeepSpeed's ZeRO on Weft. Start: DS_ACCELERATOR=cpu torchrun --nproc-per-node 2 train_deepspeed.py"""
import deepspeed
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

import letters

ON_CPU = {"device": "cpu"}
SETTINGS = {
    "ZeRO-1": {"stage": 1},
    "ZeRO-2": {"stage": 2},
    "ZeRO-2, optimizer offloaded": {"stage": 2, "offload_optimizer": ON_CPU},
    "ZeRO-3": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "ZeRO-3, optimizer offloaded": {"stage": 3, "offload_optimizer": ON_CPU},
    "ZeRO-3, all offloaded": {"stage": 3, "offload_optimizer": ON_CPU, "offload_param": ON_CPU},
}

backend = letters.arguments().backend
deepspeed.init_distributed(dist_backend=backend)
for name, zero in SETTINGS.items():
    config = {
        "train_micro_batch_size_per_gpu": letters.BATCH // dist.get_world_size(),
        "optimizer": {"type": "AdamW", "params": letters.ADAMW},
        "gradient_clipping": letters.GREATEST_NORM,
        "zero_optimization": zero,
    }
    with deepspeed.zero.Init(config_dict_or_path=config, enabled=zero["stage"] == 3):
        model = letters.Model()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    losses = []
    with profile(activities=[ProfilerActivity.CPU]) as trace:
        for x, y in letters.my_rows():
            loss = letters.loss_of(engine(x), y)
            engine.backward(loss)
            engine.step()
            losses.append(letters.mean_of_ranks(loss))
    letters.check(name, backend, losses, trace)
    engine.destroy()
dist.destroy_process_group()
