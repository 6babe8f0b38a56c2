"""One rank: the same small models trained in every way there is, and by plain CPU in one process. See `ranks`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from ranks import answer
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.func import functional_call

import smoketest
from smoketest.config.models import Parallel
from smoketest.errors import UserCodeError
from smoketest.workload.parallel import clip_grad_norm, parallelize, parameter_groups

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STEPS = 4
Loss = Callable[[Any, Tensor, Tensor], Tensor]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
        return out


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(24, 16)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(16, 24, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(x)
        return out


def made() -> nn.Module:
    torch.manual_seed(0)
    return Net()


def with_a_plan() -> nn.Module:
    """With a plan of its own, in the words of transformers; it splits both users of the tied weight."""
    model: Any = made()
    model._tp_plan = PLAN | {"embed": "embedding_rowwise", "head": "colwise_gather_output", "lm_head": "colwise"}
    return model  # type: ignore[no-any-return]


def llama() -> nn.Module:
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        num_hidden_layers=1, hidden_size=16, intermediate_size=32, num_attention_heads=2, num_key_value_heads=2,
        vocab_size=24, head_dim=8, max_position_embeddings=16,
    )  # fmt: skip
    model: nn.Module = transformers.LlamaForCausalLM(config)
    return model


def cross_entropy(model: Any, ids: Tensor, labels: Tensor) -> Tensor:
    out = model(ids)
    logits = getattr(out, "logits", out)
    loss: Tensor = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
    return loss


def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randint(0, 24, (8, 6)), torch.randint(0, 24, (8, 6))


def train(model: Any, parameters: Iterable[Any], ids: Tensor, labels: Tensor, *, spread: bool = False) -> list[float]:
    optimizer = torch.optim.AdamW(list(parameters), lr=1e-2)
    losses = []
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = cross_entropy(model, ids, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        clip_grad_norm(trained, 0.5)
        optimizer.step()
        told = loss.detach().clone()
        if spread:  # each rank had its part of the batch
            dist.all_reduce(told, dist.ReduceOp.AVG)
        losses.append(told.item())
    return losses


def alone(make: Callable[[], nn.Module]) -> list[float]:
    model = make()
    return train(model, model.parameters(), *batch())


def alone_in_bf16() -> list[float]:
    """Weights in float32, everything computed in bfloat16, as FSDP's mixed precision has it."""
    model = made()

    def call(ids: Tensor) -> Tensor:
        lower = {name: parameter.bfloat16() for name, parameter in model.named_parameters()}
        out: Tensor = functional_call(model, lower, (ids,))
        return out

    return train(call, model.parameters(), *batch())


def spread(parallel: Parallel, make: Callable[[], nn.Module] = made) -> list[float]:
    mesh = init_device_mesh("neuron", (RANKS,))
    whole = parallel.kind == "tp"
    ids, labels = (x if whole else x.chunk(RANKS)[RANK] for x in batch())
    model = parallelize(make().to("neuron"), parallel, "neuron", mesh)
    return train(model, parameter_groups(model), ids.to("neuron"), labels.to("neuron"), spread=not whole)


def refused(parallel: Parallel, make: Callable[[], nn.Module]) -> str:
    try:
        parallelize(make().to("neuron"), parallel, "neuron", init_device_mesh("neuron", (RANKS,)))
    except UserCodeError as error:
        return str(error)
    return "nothing"


PLAN = {"blocks.*.up": "colwise", "blocks.*.down": "rowwise"}


def main() -> None:
    device = smoketest.emulate(warn=False)
    dist.init_process_group("neuron")
    seen: dict[str, Any] = {
        "one": alone(made),
        "one, bf16": alone_in_bf16(),
        "ddp": spread(Parallel()),
        "fsdp2": spread(Parallel(kind="fsdp2")),
        "fsdp2, layers": spread(Parallel(kind="fsdp2", layers="blocks.*")),
        "fsdp2, bf16": spread(Parallel(kind="fsdp2", mixed_precision="bfloat16")),
        "fsdp2, offload": spread(Parallel(kind="fsdp2", cpu_offload=True)),
    }
    if "tp" in sys.argv:
        seen["tp"] = spread(Parallel(kind="tp", plan=PLAN))
        seen["tp, tied"] = spread(Parallel(kind="tp"), with_a_plan)
        seen["refused"] = {
            "no plan": refused(Parallel(kind="tp"), made),
            "no such layer": refused(Parallel(kind="tp", plan={"layers.*.up": "colwise"}), made),
            "no such layer to shard": refused(Parallel(kind="fsdp2", layers="layers.*"), made),
            "not linear": refused(Parallel(kind="tp", plan={"blocks.*.norm": "colwise"}), made),
            "untied": refused(Parallel(kind="tp", plan={"head": "colwise"}), made),
        }
    if "llama" in sys.argv:
        seen["one llama"], seen["llama"] = alone(llama), spread(Parallel(kind="tp"), llama)
    seen["fell back"] = [name for name in device.get_fallback_ops() if not name.startswith("aten::")]
    answer(seen)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
