# mypy: allow-untyped-calls
"""Spreading a model over ranks by PyTorch's own means: DDP, FSDP2, tensor parallelism."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from smoketest.config.models import Parallel
from smoketest.errors import UserCodeError

__all__ = ["clip_grad_norm", "parallelize", "parameter_groups"]

_SHARED_GRADIENT = "replicated_with_grad_allreduce"
_STYLES = ("colwise", "rowwise", "colwise_rep", "colwise_gather_output", "rowwise_rep", "rowwise_split_input",
           "embedding_rowwise", _SHARED_GRADIENT)  # fmt: skip
"""Entries of transformers' plans that PyTorch has a style for, or that need none."""
_SPLIT_MODULES = (nn.Linear, nn.Embedding)


def parallelize(module: nn.Module, parallel: Parallel, device_type: str, mesh: DeviceMesh) -> nn.Module:
    """The model as each rank trains it.

    Make the optimizer afterwards, from the result: FSDP2 and tensor parallelism replace parameters.

    Args:
        module: on its device, with the same weights on every rank.
        parallel: ``ddp`` wraps the model; ``fsdp2`` shards it in place, layer by layer and then the rest; ``tp`` splits
            in place what the plan names, the check's or the model's own (transformers).
        device_type: where it trains, ``neuron``.
        mesh: one-dimensional, of all ranks.

    Returns:
        What to call, and to train: a wrapper for ``ddp``, else the module itself.

    Raises:
        UserCodeError: the check names modules that are not there or that cannot be split, or nobody gives a plan.
    """
    if mesh.device_type != device_type:
        raise ValueError(f"the mesh is of {mesh.device_type}, the model of {device_type}")
    if parallel.kind == "ddp":
        return DistributedDataParallel(module, process_group=mesh.get_group())
    if parallel.kind == "fsdp2":
        return _sharded(module, parallel, mesh)
    return _split(module, parallel.plan, mesh)


def parameter_groups(module: nn.Module) -> list[Any]:
    """What an optimizer is given: the parameters, in two groups where only some of them are distributed.

    An optimizer updates a group at once (foreach), and PyTorch refuses to mix distributed tensors with others in that.
    """
    distributed = [parameter for parameter in module.parameters() if isinstance(parameter, DTensor)]
    plain = [parameter for parameter in module.parameters() if not isinstance(parameter, DTensor)]
    if distributed and plain:
        return [{"params": distributed}, {"params": plain}]
    return distributed or plain


def clip_grad_norm(parameters: Iterable[Tensor], most: float) -> Tensor:
    """Scale gradients to a norm of at most ``most``, as ``torch.nn.utils.clip_grad_norm_``, which cannot mix kinds.

    Returns:
        The norm of all gradients before, scalar.
    """
    given = list(parameters)
    kinds = [
        [parameter for parameter in given if parameter.grad is not None and isinstance(parameter, DTensor) is kind]
        for kind in (True, False)
    ]
    if not all(kinds):
        norm: Tensor = torch.nn.utils.clip_grad_norm_(given, most)
        return norm
    norms = [torch.nn.utils.get_total_norm([p.grad for p in kind if p.grad is not None]) for kind in kinds]
    total: Tensor = torch.stack([norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms]).norm()
    for kind in kinds:
        torch.nn.utils.clip_grads_with_norm_(kind, most, total)
    return total


def _sharded(module: nn.Module, parallel: Parallel, mesh: DeviceMesh) -> nn.Module:
    precision = MixedPrecisionPolicy(
        param_dtype=getattr(torch, parallel.mixed_precision) if parallel.mixed_precision is not None else None
    )
    offload = CPUOffloadPolicy() if parallel.cpu_offload else OffloadPolicy()
    for layer in _layers(module, parallel.layers):
        fully_shard(layer, mesh=mesh, mp_policy=precision, offload_policy=offload)
    fully_shard(module, mesh=mesh, mp_policy=precision, offload_policy=offload)
    return module


def _layers(module: nn.Module, pattern: str | None) -> list[nn.Module]:
    """The submodules that are sharded one by one, inner ones first."""
    if pattern is not None:
        found = [layer for name, layer in module.named_modules() if name and _matches(name, pattern)]
        if not found:
            raise _names_nothing(module, "parallel.layers", pattern)
    else:
        lists = [part for part in module.modules() if isinstance(part, nn.ModuleList)]
        found = [layer for part in lists for layer in part]
    # A list inside a layer comes after the list that holds the layer; FSDP wants the inner ones first.
    return [
        layer for layer in reversed(list(dict.fromkeys(found))) if not isinstance(layer, nn.ModuleList | nn.ModuleDict)
    ]


def _split(module: nn.Module, given: Mapping[str, str], mesh: DeviceMesh) -> nn.Module:
    plan = given or _own_plan(module)
    if not plan:
        raise UserCodeError(
            f"{type(module).__name__} has no tensor-parallel plan of its own, and the check gives none",
            hint='name its layers under parallel.plan: {"layers.*.up": colwise, "layers.*.down": rowwise}',
        )
    modules = dict(module.named_modules())
    tied = _tied(module)
    styles: dict[str, ParallelStyle] = {}
    for pattern, style in plan.items():
        found = [name for name in modules if name and _matches(name, pattern)]
        if not found:
            if not given:  # a plan of the model's class names what a variant may lack
                continue
            raise _names_nothing(module, "parallel.plan", pattern)
        for name in found:
            if style == _SHARED_GRADIENT:
                _share_gradients(modules[name], mesh)
            else:
                styles[name] = _style(name, modules[name], style)
    parallelize_module(module, mesh, styles)
    _tie_again(module, tied)
    _refuse_what_does_not_fit(modules, styles, mesh.size())
    return module


def _refuse_what_does_not_fit(
    modules: Mapping[str, nn.Module], styles: Mapping[str, ParallelStyle], ranks: int
) -> None:
    """Refuse a plan that no step can be made by: uneven parts, or parts that nothing gives or takes.

    Raises:
        UserCodeError: of the first such layer. What stands between two layers of a plan shows in the step alone.
    """
    gives, takes = None, None  # a layer that leaves its part of the features, and one that begins with such a part
    for name, style in styles.items():
        layer = modules[name]
        if isinstance(layer, nn.Linear):
            count, what = (
                (layer.out_features, "out_features")
                if isinstance(style, ColwiseParallel)
                else (layer.in_features, "in_features")
            )
            if count % ranks:
                raise UserCodeError(
                    f"parallel.plan does not fit the model: {name} has {what}={count}, which does not split into equal"
                    f" parts for {ranks} ranks",
                    hint="leave it out of the plan, or use another --nproc",
                )
        if isinstance(style, ColwiseParallel) and not isinstance(style.output_layouts[0], Replicate):
            gives = gives or name
        if isinstance(style, RowwiseParallel) and not isinstance(style.input_layouts[0], Replicate):
            takes = takes or name
    if gives is not None and takes is None:
        raise UserCodeError(
            f"parallel.plan does not fit the model: {gives} is split colwise, and no rowwise Linear takes its part up",
            hint=f'name the layer behind it: {{"{gives}": colwise, "...": rowwise}}',
        )
    if takes is not None and gives is None:
        raise UserCodeError(
            f"parallel.plan does not fit the model: {takes} is split rowwise, and no colwise layer gives it a part",
            hint=f'name the layer before it: {{"...": colwise, "{takes}": rowwise}}',
        )


def _own_plan(module: nn.Module) -> Mapping[str, str]:
    """The plan that transformers gives a model; empty without one."""
    plan = getattr(module, "_tp_plan", None)
    return plan if isinstance(plan, Mapping) else {}


def _style(name: str, module: nn.Module, style: str) -> ParallelStyle:
    if style not in _STYLES:
        raise UserCodeError(
            f"the model's own plan asks for {style!r} of {name}, which PyTorch's tensor parallelism has not",
            hint="give a plan of colwise and rowwise layers under parallel.plan",
        )
    if not isinstance(module, _SPLIT_MODULES):
        raise UserCodeError(
            f"{name} is a {type(module).__name__}: PyTorch splits Linear and Embedding modules only",
            hint="leave it out of parallel.plan",
        )
    if style == "colwise":
        return ColwiseParallel()
    if style == "rowwise" and isinstance(module, nn.Linear):
        return RowwiseParallel()
    if style.startswith("colwise"):
        return ColwiseParallel(output_layouts=Replicate())
    return RowwiseParallel(input_layouts=Replicate())


def _share_gradients(module: nn.Module, mesh: DeviceMesh) -> None:
    """Add the gradients of all ranks: each has applied the whole weight to its part of the activations."""
    group = mesh.get_group()

    def summed(gradient: Tensor) -> Tensor:
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    for parameter in module.parameters():
        parameter.register_hook(summed)


def _tied(module: nn.Module) -> list[list[str]]:
    """Names of parameters that are one and the same, in groups of two or more."""
    groups: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def _tie_again(module: nn.Module, tied: list[list[str]]) -> None:
    """Make one parameter of those that were one, where splitting made several."""
    for first, *others in tied:
        kept = module.get_parameter(first)
        for name in others:
            other = module.get_parameter(name)
            if other is kept:
                continue
            if getattr(other, "placements", None) != getattr(kept, "placements", None):
                raise UserCodeError(
                    f"{first} and {name} are one parameter, and the plan splits them differently",
                    hint="split both the same way: an embedding rowwise and its output layer colwise",
                )
            owner, _, attribute = name.rpartition(".")
            setattr(module.get_submodule(owner), attribute, kept)


def _matches(name: str, pattern: str) -> bool:
    """Whether a qualified name is meant by a glob, in which ``*`` stays between two dots."""
    parts, patterns = name.split("."), pattern.split(".")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def _names_nothing(module: nn.Module, key: str, pattern: str) -> UserCodeError:
    names = list(_patterns_of(module))
    return UserCodeError(
        f"{key}: no module of {type(module).__name__} is called {pattern!r}",
        hint=f"it has {', '.join(names[:12])}{' ...' if len(names) > 12 else ''}",
    )


def _patterns_of(module: nn.Module) -> Iterator[str]:
    """The qualified names of the modules, numbers as ``*``, each once."""
    named = (name for name, _ in module.named_modules() if name)
    yield from dict.fromkeys(".".join("*" if part.isdigit() else part for part in name.split(".")) for name in named)
