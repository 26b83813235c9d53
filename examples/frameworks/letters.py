"""The model, the data and the checks that the programs of this folder share."""
import argparse
import json
import re
from collections import Counter

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS, BATCH, LENGTH, LETTERS = 12, 16, 12, 29
ADAMW = {"lr": 0.01, "weight_decay": 0.01}
GREATEST_NORM = 0.5  # of the gradients


class Layer(nn.Module):
    """Attention to earlier letters, then a perceptron."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
        self.attention, self.joined = nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        query, key, value = self.attention(self.norm1(x)).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        heads = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.joined(heads.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    """A small transformer that predicts the next letter."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.embedding = nn.Embedding(LETTERS, 32)
        self.layers = nn.Sequential(Layer(), Layer())
        self.head = nn.Linear(32, LETTERS)

    def forward(self, x):
        return self.head(self.layers(self.embedding(x)))


def data():
    """Rows of letters at one of four distances."""
    source = torch.Generator().manual_seed(2)
    first = torch.randint(LETTERS, (STEPS * BATCH, 1), generator=source)
    distance = torch.randint(1, 5, (STEPS * BATCH, 1), generator=source)
    rows = (first + distance * torch.arange(LENGTH + 1)) % LETTERS
    return TensorDataset(rows[:, :-1], rows[:, 1:])


def my_rows():
    """The part of this rank: in each step, the ranks together take the same rows as one process."""
    return DataLoader(data(), BATCH // dist.get_world_size(), sampler=DistributedSampler(data(), shuffle=False))


def loss_of(output, y):
    return nn.functional.cross_entropy(output.flatten(0, 1), y.flatten())


def mean_of_ranks(loss):
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="weft", help="of torch.distributed")
    return parser.parse_args()


def alone():
    """The losses of one process that sees all rows."""
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    losses = []
    for x, y in DataLoader(data(), BATCH):
        loss = loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), GREATEST_NORM)
        optimizer.step()
        losses.append(loss.item())
    return losses


def report(name, backend, losses, trace):
    """Prints the losses. Raises RuntimeError unless `backend` carried all collectives."""
    calls = Counter(event.name for event in trace.events() if re.fullmatch(r"[a-z]+:[a-z_]+", event.name))
    if not calls or any(not call.startswith(backend + ":") for call in calls):
        raise RuntimeError(f"{name}: {backend} did not carry all collectives: {dict(calls)}")
    if losses[-1] > 0.9 * losses[0]:
        raise RuntimeError(f"{name}: the model does not learn: {losses}")
    if dist.get_rank() == 0:
        print(json.dumps({"name": name, "losses": losses, "collectives": calls}))


def check(name, backend, losses, trace):
    """As report, and raises RuntimeError unless the losses are those of one process."""
    wanted = alone()
    if not torch.allclose(torch.tensor(losses), torch.tensor(wanted), rtol=1e-3):
        raise RuntimeError(f"{name}: the losses are {losses}, and those of one process are {wanted}")
    report(name, backend, losses, trace)
