"""A plain loop for CUDA, with clipping, a scheduler, autocast, and .cuda() and .to(device) side by side."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

torch.manual_seed(args.seed)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if device.type == "cuda":
    torch.cuda.manual_seed_all(args.seed)
    print("training on", torch.cuda.get_device_name(0))

model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
model = model.cuda() if torch.cuda.is_available() else model
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
data = TensorDataset(torch.randn(64, 16), torch.randint(0, 4, (64,)))
loader = DataLoader(data, batch_size=16, shuffle=True, drop_last=True)

for _ in range(args.epochs):
    for inputs, labels in loader:
        inputs, labels = inputs.to(device, non_blocking=True), labels.to(device)
        with torch.autocast(device_type=device.type, dtype=torch.bfloat16, enabled=False):
            loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        torch.cuda.synchronize() if torch.cuda.is_available() else None
        print(f"loss {loss.item():.6f}", flush=True)
