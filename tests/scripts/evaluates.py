"""Trains on whatever accelerator there is, evaluates every second step, and keeps checkpoints it can go on from."""

import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

accelerator = None if "--cpu" in sys.argv else torch.accelerator.current_accelerator()
device = accelerator or torch.device("cpu")
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 5)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
held_out = torch.randn(8, 3, 8, 8), torch.randint(0, 5, (8,))


def evaluate():
    model.eval()
    with torch.no_grad():
        right = (model(held_out[0].to(device)).argmax(-1).cpu() == held_out[1]).float().mean()
    model.train()
    return right.item()


with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "last.pt"
    try:
        for step in range(30):
            inputs, labels = torch.randn(8, 3, 8, 8).to(device), torch.randint(0, 5, (8,)).to(device)
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"loss {loss.item():.6f}", flush=True)
            if step % 2 == 1:
                assert 0.0 <= evaluate() <= 1.0
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
                kept = torch.load(file, map_location=device)
                model.load_state_dict(kept["model"])
                optimizer.load_state_dict(kept["optimizer"])
    finally:
        print("ended cleanly" if file.exists() else "ended without a checkpoint", flush=True)
