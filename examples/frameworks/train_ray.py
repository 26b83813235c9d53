"""train_ray.py: Ray Train on Weft. Start: python train_ray.py"""
import ray
import ray.train
import torch
import torch.distributed as dist
from ray.train.torch import TorchConfig, TorchTrainer, prepare_data_loader, prepare_model
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader

import letters


def train(settings):
    model = prepare_model(letters.Model())
    optimizer = torch.optim.AdamW(model.parameters(), **letters.ADAMW)
    rows = prepare_data_loader(DataLoader(letters.data(), letters.BATCH // dist.get_world_size()))
    losses = []
    with profile(activities=[ProfilerActivity.CPU]) as trace:
        for x, y in rows:
            loss = letters.loss_of(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), letters.GREATEST_NORM)
            optimizer.step()
            losses.append(letters.mean_of_ranks(loss))
    letters.check("Ray Train", settings["backend"], losses, trace)
    ray.train.report({"loss": losses[-1]})


backend = letters.arguments().backend
ray.init(num_cpus=2, include_dashboard=False)
trainer = TorchTrainer(
    train,
    train_loop_config={"backend": backend},
    torch_config=TorchConfig(backend=backend),
    scaling_config=ray.train.ScalingConfig(num_workers=2, use_gpu=False),
)
trainer.fit()
ray.shutdown()
