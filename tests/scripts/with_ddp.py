"""A training script as people run it with torchrun: a process group, DistributedDataParallel, a DistributedSampler."""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--fail-on", type=int, default=-1, help="rank that sorts, or stops, for tests")
    parser.add_argument("--how", choices=("sort", "exit", "raise"), default="sort")
    options = parser.parse_args()

    dist.init_process_group("neuron")
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("neuron")

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1)).to(device)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    inputs = torch.randn(64, 8)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, size, rank, shuffle=False))

    for epoch in range(options.epochs):
        for step, (x, y) in enumerate(loader):
            x, y = x.to(device), y.to(device)
            if options.fail_on == rank:
                if options.how == "sort":
                    x = x[torch.sort(x[:, 0], stable=True).indices]
                elif options.how == "exit" and step == 1:
                    os._exit(7)
                elif options.how == "raise" and step == 1:
                    raise ValueError("the data of this rank is broken")
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            mean = loss.detach().clone()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            if rank == 0:
                print(f"epoch {epoch} step {step} loss {mean.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
