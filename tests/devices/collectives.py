"""One rank of two: every collective once, every rule broken once. Run by `test_process_group` through `ranks`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.nn.functional as differentiable
from ranks import answer
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import smoketest

RANK = int(os.environ["RANK"])
FOLDER = Path(os.environ["RANKS_ANSWERS"])


def refused(call: Callable[[], object]) -> list[str]:
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["nothing", ""]


def mine(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """1 1 on rank 0, 2 2 on rank 1."""
    return torch.full((2,), RANK + 1, dtype=dtype).to("neuron")


def carried() -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for name, op in (("sum", dist.ReduceOp.SUM), ("max", dist.ReduceOp.MAX), ("avg", dist.ReduceOp.AVG)):
        x = mine()
        dist.all_reduce(x, op)
        seen[f"all_reduce {name}"] = x.tolist()
    x = mine(torch.bfloat16)
    work = dist.all_reduce(x, async_op=True)
    assert work is not None
    work.wait()
    seen["all_reduce bf16, async"] = x.tolist()
    every = torch.empty(4, device="neuron")
    dist.all_gather_single(every, mine())
    seen["all_gather_single"] = every.tolist()
    each = [torch.empty(2, device="neuron") for _ in range(2)]
    dist.all_gather(each, mine())
    seen["all_gather"] = [x.tolist() for x in each]
    part = torch.empty(2, device="neuron")
    dist.reduce_scatter_single(part, torch.arange(4.0).to("neuron"))
    seen["reduce_scatter_single"] = part.tolist()
    x = mine()
    dist.broadcast(x, src=1)
    seen["broadcast"] = x.tolist()
    x = mine()
    dist.reduce(x, dst=0)
    seen["reduce to 0"] = x.tolist() if RANK == 0 else None
    strided = torch.arange(4.0).reshape(2, 2).to("neuron")[:, 1].contiguous() + RANK
    dist.all_reduce(strided)
    seen["all_reduce of a column"] = strided.tolist()
    objects: list[Any] = [None, None]
    dist.all_gather_object(objects, {"rank": RANK})
    seen["all_gather_object"] = objects
    seen["functional"] = functional.all_reduce(mine(), "sum", dist.group.WORLD).tolist()
    dist.barrier()
    leaf = mine().requires_grad_()
    differentiable.all_reduce(leaf).sum().backward()
    seen["gradient of all_reduce"] = leaf.grad.tolist() if leaf.grad is not None else None
    return seen


def many() -> int:
    """Collectives in quick succession: gloo's thread ends one while the next is begun."""
    ended = 0
    for _ in range(100):
        several = [torch.ones(64).to("neuron") for _ in range(3)]
        works = [dist.all_reduce(x, async_op=True) for x in several]
        dist.all_gather_object([None, None], RANK)
        for work, x in zip(works, several, strict=True):
            assert work is not None
            work.wait()
            assert x[0].item() == 2
        ended += 1
    return ended


def sharded() -> dict[str, Any]:
    mesh = init_device_mesh("neuron", (2,))
    whole = torch.arange(4.0).to("neuron")
    shards = distribute_tensor(whole, mesh, [Shard(0)])
    seen: dict[str, Any] = {"local": shards.to_local().tolist(), "device": str(shards.device)}
    seen["redistributed"] = (shards * 2).redistribute(mesh, [Replicate()]).to_local().tolist()
    dcp.save({"x": shards}, checkpoint_id=FOLDER / "checkpoint")
    into = distribute_tensor(torch.zeros(4).to("neuron"), mesh, [Shard(0)])
    dcp.load({"x": into}, checkpoint_id=FOLDER / "checkpoint")
    seen["loaded"] = into.full_tensor().tolist() if isinstance(into, DTensor) else None
    return seen


def broken_rules() -> dict[str, Any]:
    some = dist.new_group([0, 1])
    whole = torch.arange(4.0).to("neuron")
    seen = {
        "send": refused(lambda: dist.send(mine(), 1 - RANK)),
        "recv": refused(lambda: dist.recv(mine(), 1 - RANK)),
        "barrier": refused(lambda: dist.barrier(group=some)),
        "all_to_all_single": refused(lambda: dist.all_to_all_single(torch.empty_like(whole), whole)),
        "all_to_all": refused(lambda: dist.all_to_all(list(torch.empty(2, 2).to("neuron")), list(whole.reshape(2, 2)))),
        "float64": refused(lambda: dist.all_reduce(mine(torch.float64))),
        "int64": refused(lambda: dist.all_reduce(mine(torch.int64))),
        "int32": refused(lambda: dist.reduce_scatter_single(mine(torch.int32)[:1], mine(torch.int32))),
        "gloo group": refused(lambda: dist.all_reduce(mine(), group=dist.new_group([0, 1], backend="gloo"))),
        "set_device": refused(lambda: torch.get_device_module("neuron").set_device(1 - RANK)),
        "own index": refused(lambda: torch.zeros(2, device=f"neuron:{RANK}")),
        "no such index": refused(lambda: torch.zeros(2, device="neuron:7")),
    }
    os.environ["NEURON_CC_FLAGS"] = "--implicit-integer-downcast=all_reduce"
    seen["int64, downcast allowed"] = refused(lambda: dist.all_reduce(mine(torch.int64)))
    freed = mine()
    freed.untyped_storage().resize_(0)
    seen["freed"] = refused(lambda: dist.all_reduce(freed))
    return seen


def cpu_tensors(device: Any) -> dict[str, Any]:
    device.warn = True
    seen: dict[str, Any] = {"before": [rule.what for rule in device.met_rules]}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        x = torch.ones(2)
        dist.all_reduce(x)
        dist.all_reduce(x)
        dist.all_reduce(torch.ones(2), group=dist.new_group([0, 1], backend="gloo"))
        dist.all_reduce(torch.ones(2), group=dist.new_group([0, 1], backend="cpu:gloo,neuron:neuron"))
    seen["sum"] = x.tolist()
    seen["told"] = [str(one.message) for one in told if "CPU tensor" in str(one.message)]
    seen["after"] = [rule.what for rule in device.met_rules]
    return seen


def unused_parameters() -> list[str]:
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2).to("neuron"), find_unused_parameters=True)
    return refused(lambda: model(torch.ones(2, 2).to("neuron")).sum().backward())


def main() -> None:
    device = smoketest.emulate(warn=False)
    dist.init_process_group("neuron")
    seen = {"carried": carried(), "backend": dist.get_backend()}
    seen["default backend"] = dist.get_default_backend_for_device("neuron")
    seen["executed"] = sorted(name for name in device.get_executed_ops() if name.startswith("c10d::"))
    seen["fell back"] = device.get_fallback_ops()
    seen["many"] = many()
    seen["sharded"] = sharded()
    seen["broken"] = broken_rules()
    seen["cpu"] = cpu_tensors(device)
    seen["unused"] = unused_parameters()
    device.clear_op_tracking()
    dist.destroy_process_group()
    seen["late"] = refused(lambda: dist.init_process_group("neuron"))
    answer(seen)


if __name__ == "__main__":
    main()
