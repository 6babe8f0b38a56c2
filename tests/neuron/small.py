"""A model small enough to be run often, with one op of each kind.

sort and lgamma fall back in forward, the gradient of lgamma in backward, maximum in the optimizer: the emulated device,
below the doubles, has no kernel for them. On a Trainium it may be less. item() waits for the device. acos falls back
while the model is moved, and never else.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.outer = nn.Linear(4, 4)

    def _apply(self, function: Callable[[Tensor], Tensor], recurse: bool = True) -> Small:
        moved = super()._apply(function, recurse)
        torch.acos(self.inner.bias * 0)
        return moved

    def forward(self, x: Tensor) -> Tensor:
        x = functional.gelu(self.inner(x))
        x = torch.sort(x, dim=-1, stable=True).values
        x = functional.silu(self.outer(x))
        x = x + torch.lgamma(x.abs() + 1)
        return x * x.detach().sum().item()


class Plain:
    """An optimizer that costs no import of torch._dynamo."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = list(parameters)

    @torch.no_grad()
    def step(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter -= 1e-3 * torch.maximum(parameter.grad, parameter)


def make_model() -> nn.Module:
    return Small()


def make_batch(step: int) -> dict[str, Tensor]:
    return {"x": torch.randn(2, 4, generator=torch.Generator().manual_seed(step))}


def loss_fn(output: Tensor, batch: dict[str, Tensor]) -> Tensor:
    return output.pow(2).sum()


def make_optimizer(params: list[nn.Parameter]) -> Plain:
    return Plain(params)
