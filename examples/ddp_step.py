"""ddp_step.py: training steps of DistributedDataParallel on Weft. torchrun starts it; only "weft" is new in it."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("weft")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.randn(8 * size, 32)[rank * 8 : (rank + 1) * 8]
losses = []
for step in range(5):
    optimizer.zero_grad()
    loss = (model(data) - 1).square().mean()
    loss.backward()  # all-reduces the gradients
    optimizer.step()
    mean = loss.detach()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    losses.append(mean.item())
weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
everyone = [torch.empty_like(weights) for _ in range(size)]
dist.all_gather(everyone, weights)
if not all(torch.equal(other, weights) for other in everyone):
    raise SystemExit(f"rank {rank} has other weights than another rank")
if rank == 0:
    print(f"the loss of {size} ranks went from {losses[0]:.3f} to {losses[-1]:.3f}")
dist.destroy_process_group()
