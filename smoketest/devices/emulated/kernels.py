# mypy: allow-untyped-calls
"""Kernels of the device, planned once per overload from its schema.

The schema says which arguments cross to the CPU, which are written, and what comes back; nothing is looked up while an
op runs. The commonest shapes of schema get a closure of their own, because every microsecond counts in eager mode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from smoketest.devices.emulated.compat import Overload, from_dlpack, lets_through, on_cpu_key, raw_call, to_dlpack
from smoketest.devices.emulated.crossing import (
    CPU_TAG,
    leave,
    leave_plain,
    retag,
    same_device,
    to_cpu,
    to_cpu_with_bits,
)
from smoketest.devices.emulated.geometry import settle, the_cpu_for

__all__ = ["Kernel", "is_view", "kernel_for", "view_kernel"]

Kernel = Callable[..., Any]
Cross = Callable[[Any], Any]

_BITS = ("Conjugate", "Negative")
_TAKES_NUMBERS = frozenset(f"aten::{base}{end}.Tensor" for base in ("add", "sub", "mul", "div") for end in ("", "_"))
"""Overloads whose own argument parser takes a Python number for a tensor, with C++'s promotion of wrapped numbers."""


def is_view(op: Overload) -> bool:
    """Whether the op returns an alias of its input and writes nothing."""
    return not op._schema.is_mutable and any(r.alias_info is not None for r in op._schema.returns)


def view_kernel(op: Overload) -> Kernel:
    """PyTorch's CPU view kernels work on any tensor: run as they are, storage, aliasing, bits and device stay."""
    return on_cpu_key(op)


_RESIZES_ITS_OUT = frozenset({"aten::mse_loss.out", "aten::smooth_l1_loss.out"})
"""CPU kernels that use the scalar they are given for a result as scratch space: on an alias they warn of resizing."""


@dataclass
class _Plan:
    """What an op's schema says.

    Attributes:
        positional: which positional arguments cross, and how.
        keyword: the same for keyword arguments.
        tensors: positions of single tensors.
        outs: names of the ``out=`` arguments.
        back: for each result, the argument it is (position or name), or None for a new tensor.
        writes: whether the op writes any argument.
        owns_outs: whether the op is given ``out=`` tensors with memory of their own rather than aliases.
        takes_numbers: whether a number may be passed where the schema says Tensor.
        drops_bits: whether conjugate and negative bits are resolved before the op gets its arguments.
    """

    positional: list[tuple[int, Cross]] = field(default_factory=list)
    keyword: list[tuple[str, Cross]] = field(default_factory=list)
    tensors: list[int] = field(default_factory=list)
    outs: list[str] = field(default_factory=list)
    back: list[int | str | None] = field(default_factory=list)
    writes: bool = False
    owns_outs: bool = False
    takes_numbers: bool = False
    drops_bits: bool = False


def kernel_for(op: Overload, *, native: bool = True, call: Kernel | None = None) -> Kernel:
    """A kernel that runs ``op`` on CPU aliases of its arguments.

    Args:
        op: any overload with a CPU kernel, or one that PyTorch computes from others.
        native: a kernel of the device refuses CPU tensors among its arguments; the CPU fallback mixes them.
        call: what computes it, on CPU tensors; the op itself when None.
    """
    plan = _read(op, native)
    call = call or raw_call(op)
    if plan.writes:
        return _only_in_place(call, plan) or _writing(call, plan)
    return _only_tensors(call, plan) or _functional(call, plan)


def _read(op: Overload, native: bool) -> _Plan:
    plan = _Plan()
    enter = to_cpu_with_bits if any(lets_through(op.name(), key) for key in _BITS) else to_cpu
    refuse_cpu = native and "_foreach_" not in op.name()  # foreach ops take their scalars as CPU tensors
    written: dict[frozenset[str], int | str] = {}
    for index, argument in enumerate(op._schema.arguments):
        where: int | str = argument.name if argument.kwarg_only else index
        single = str(argument.type) in ("Tensor", "Optional[Tensor]")
        label = f"kwarg '{where}'" if argument.kwarg_only else f"arg{index}"
        # Indices of a[i] come as a list of optional tensors, and PyTorch takes them from the CPU.
        strict = refuse_cpu and str(argument.type) != "List[Optional[Tensor]]"
        cross = _crossing(str(argument.type), same_device(enter, label, op.name()) if strict else enter)
        if cross is not None and isinstance(where, str):
            plan.keyword.append((where, cross))
        elif cross is not None and isinstance(where, int):
            plan.positional.append((where, cross))
            plan.tensors += [where] if single else []
        if argument.alias_info is not None and argument.alias_info.is_write:
            written[frozenset(argument.alias_info.before_set)] = where
            plan.outs += [where] if isinstance(where, str) else []
    for result in op._schema.returns:
        alias = result.alias_info
        plan.back.append(None if alias is None else written.get(frozenset(alias.before_set)))
    plan.writes = bool(written)
    plan.owns_outs = op.name() in _RESIZES_ITS_OUT
    plan.takes_numbers = op.name() in _TAKES_NUMBERS
    plan.drops_bits = enter is to_cpu
    return plan


def _crossing(kind: str, enter: Cross) -> Cross | None:
    """How an argument of this schema type crosses to the CPU; None when it stays as it is."""
    if kind in ("Tensor", "Optional[Tensor]"):
        return enter
    if kind in ("List[Tensor]", "List[Optional[Tensor]]", "Optional[List[Tensor]]"):
        return lambda tensors: None if tensors is None else [enter(x) for x in tensors]
    if kind in ("Device", "Optional[Device]"):
        return the_cpu_for
    return None


def _only_tensors(call: Kernel, plan: _Plan) -> Kernel | None:
    """The fast form for functional ops whose only crossing arguments are one to three leading tensors."""
    positions = [position for position, _ in plan.positional]
    if plan.keyword or len(plan.back) != 1 or plan.tensors != positions or positions != list(range(len(positions))):
        return None
    crosses = [cross for _, cross in plan.positional]
    if len(crosses) == 1:
        first = crosses[0]
        return lambda x, *rest, **kwargs: leave(call(first(x), *rest, **kwargs))
    general, takes_numbers, plain = _functional(call, plan), plan.takes_numbers, plan.drops_bits
    if len(crosses) == 2:
        first, second = crosses

        def two(x: Any, y: Any = None, *rest: Any, **kwargs: Any) -> Any:
            # The commonest kernels of all: `to_cpu` is written out, which saves a call for each argument.
            if plain and isinstance(x, Tensor) and isinstance(y, Tensor) and not x.is_cpu and not y.is_cpu:
                one, other = to_dlpack(x), to_dlpack(y)
                retag(one, CPU_TAG)
                retag(other, CPU_TAG)
                return leave_plain(call(from_dlpack(one), from_dlpack(other), *rest, **kwargs))
            if takes_numbers or (isinstance(x, Tensor) and isinstance(y, Tensor)):
                return leave(call(first(x), second(y), *rest, **kwargs))
            return general(x, y, *rest, **kwargs)

        return two
    if len(crosses) == 3:
        first, second, third = crosses

        def three(x: Any, y: Any = None, z: Any = None, *rest: Any, **kwargs: Any) -> Any:
            if isinstance(x, Tensor) and isinstance(y, Tensor) and isinstance(z, Tensor):
                return leave(call(first(x), second(y), third(z), *rest, **kwargs))
            return general(x, y, z, *rest, **kwargs)

        return three
    return None


def _only_in_place(call: Kernel, plan: _Plan) -> Kernel | None:
    """The fast form for in-place ops that write their first argument and cross at most one more."""
    positions = [position for position, _ in plan.positional]
    if plan.keyword or plan.outs or plan.back != [0] or plan.tensors != positions or positions not in ([0], [0, 1]):
        return None
    crosses = [cross for _, cross in plan.positional]
    if len(crosses) == 1:
        first = crosses[0]

        def one(x: Tensor, *rest: Any, **kwargs: Any) -> Tensor:
            call(first(x), *rest, **kwargs)
            return x

        return one
    first, second = crosses
    general, takes_numbers = _writing(call, plan), plan.takes_numbers

    def two(x: Tensor, y: Any, *rest: Any, **kwargs: Any) -> Any:
        if not (takes_numbers or isinstance(y, Tensor)):
            return general(x, y, *rest, **kwargs)
        call(first(x), second(y), *rest, **kwargs)
        return x

    return two


def _functional(call: Kernel, plan: _Plan) -> Kernel:
    single = len(plan.back) == 1

    def kernel(*args: Any, **kwargs: Any) -> Any:
        positional, keyword = _enter(plan, args, kwargs)
        out = call(*positional, **keyword)
        return leave(out) if single else tuple(leave(item) for item in out or ()) or None

    return kernel


def _writing(call: Kernel, plan: _Plan) -> Kernel:
    outs, back = plan.outs, plan.back

    def kernel(*args: Any, **kwargs: Any) -> Any:
        positional, keyword = _enter(plan, args, kwargs)
        if plan.owns_outs:
            _own(outs, keyword)
        try:
            out = call(*positional, **keyword)
        except RuntimeError as error:
            if not outs or "resiz" not in str(error):
                raise
            _own(outs, keyword)  # an alias cannot grow its memory
            out = call(*positional, **keyword)
        for name in outs:
            settle(kwargs.get(name), keyword.get(name))
        items = [out] if len(back) == 1 else out or ()
        results = [
            leave(item) if where is None else kwargs[where] if isinstance(where, str) else args[where]
            for item, where in zip(items, back, strict=False)
        ]
        return results[0] if len(results) == 1 else tuple(results) or None

    return kernel


def _own(outs: list[str], keyword: dict[str, Any]) -> None:
    """Put empty tensors that own their memory, and so can grow, in the place of the ``out=`` arguments."""
    for name in outs:
        if isinstance(keyword.get(name), Tensor):
            keyword[name] = torch.empty(0, dtype=keyword[name].dtype)


def _enter(plan: _Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments as the CPU op takes them."""
    positional, keyword = list(args), dict(kwargs)
    for index, cross in plan.positional:
        if index < len(positional):
            positional[index] = cross(positional[index])
    for name, cross in plan.keyword:
        if name in keyword:
            keyword[name] = cross(keyword[name])
    _unwrap_numbers(plan, positional)
    return positional, keyword


def _unwrap_numbers(plan: _Plan, positional: list[Any]) -> None:
    """A wrapped number reaches a Python kernel as int or float where the schema says Tensor: make it one again.

    A 0-dim tensor of the promoted dtype gives the result dtypes that C++'s wrapped number gives.
    """
    if plan.takes_numbers:
        return
    for index in plan.tensors:
        if index < len(positional) and positional[index] is not None and not isinstance(positional[index], Tensor):
            like = next(
                (positional[i] for i in plan.tensors if i < len(positional) and isinstance(positional[i], Tensor)),
                None,
            )
            number = positional[index]
            dtype = None if like is None else torch.result_type(like, number)
            positional[index] = torch.tensor(number, dtype=dtype)
