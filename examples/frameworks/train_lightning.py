"""train_lightning.py: Lightning on Weft, by DDP and FSDP2. Start: torchrun --nproc-per-node 2 train_lightning.py"""
import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from torch.distributed.fsdp import fully_shard
from torch.profiler import ProfilerActivity, profile

import letters


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = letters.Model()
        self.losses = []

    def training_step(self, batch, _):
        x, y = batch
        loss = letters.loss_of(self.model(x), y)
        self.log("loss", loss, sync_dist=True)
        self.losses.append(letters.mean_of_ranks(loss))
        return loss

    def train_dataloader(self):
        return letters.my_rows()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), **letters.ADAMW)


class Sharded(Module):
    def configure_model(self):
        mesh = self.device_mesh["data_parallel"]
        for layer in self.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(self.model, mesh=mesh)


backend = letters.arguments().backend
for name, module, strategy in (
    ("Lightning DDP", Module, DDPStrategy(process_group_backend=backend)),
    ("Lightning FSDP2", Sharded, ModelParallelStrategy(2, 1, process_group_backend=backend)),
):
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy=strategy, max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False,
        gradient_clip_val=letters.GREATEST_NORM,
    )
    made = module()
    with profile(activities=[ProfilerActivity.CPU]) as trace:
        trainer.fit(made)
    letters.check(name, backend, made.losses, trace)
dist.destroy_process_group()
