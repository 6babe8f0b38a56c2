"""A plain loop for Trainium that wants every op on the device."""

import torch
import torch_neuronx
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 50)).to("neuron")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
torch_neuronx.clear_op_tracking()
for _ in range(50):
    tokens = torch.randint(0, 50, (4, 9))
    inputs, labels = tokens[:, :-1].to("neuron"), tokens[:, 1:].to("neuron")
    loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), labels.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch_neuronx.synchronize()
    assert torch_neuronx.get_fallback_ops() == [], torch_neuronx.get_fallback_ops()
    print(f"loss {loss.item():.6f}", flush=True)
