"""What moving a model to the device changed: NST107.

The model is looked at before and after the move: which names are one tensor, the dtypes and some values of parameters
and buffers, and the tensors that PyTorch does not move, since they are no parameters or buffers. A tensor left on the
CPU is trouble where an op takes it beside tensors of the device, which a dispatch mode sees (`StrayUse`); one that
forward copies to the device itself is none.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from smoketest.findings import Observation, SitePolicy
from smoketest.witness.digest import picked
from smoketest.witness.modes import WatchingMode
from smoketest.witness.sites import Line

__all__ = ["Move", "Stray", "StrayUse"]

_VALUES = 2**12
_DEPTH = 4
_MOST_ITEMS = 10_000
_MOST_NAMED = 8
_COPIES = frozenset({"aten::_to_copy", "aten::copy_", "aten::clone", "aten::detach", "aten::alias"})
_MIXED = ("same device", "is on cpu", "two devices")


@dataclass(frozen=True)
class Stray:
    """A tensor of one or more dimensions that the model holds and that is neither parameter nor buffer of it.

    A parameter too, where nothing registers it: one of a module that is kept in a plain list or dict.

    Attributes:
        name: such as ``encoder.window`` or ``scales[1]``.
        module: qualified name of the module that holds it; empty for the model itself.
        tensor: it.
        line: where it was assigned, if that can be found.
    """

    name: str
    module: str
    tensor: Tensor
    line: Line | None


@dataclass(frozen=True)
class _Change:
    text: str
    module: str | None = None
    line: Line | None = None
    remedy: str | None = None


@dataclass(frozen=True)
class _Known:
    """A parameter or buffer as it was."""

    tensor: Tensor
    storage: int
    dtype: torch.dtype
    values: Tensor | None


class Move:
    """Enter it around ``model.to(device)``; afterwards it tells what that changed.

    Args:
        model: built, on the CPU.
        device: type of the device, ``neuron``; nothing is told of a move to ``cpu``.
        policy: says which files are the user's, where caches at module level are looked for.
    """

    def __init__(self, model: nn.Module, device: str, policy: SitePolicy) -> None:
        self.model, self.device, self._policy = model, device, policy
        self._changes: list[_Change] = []
        self._shared: list[tuple[tuple[str, ...], list[tuple[Tensor, int]]]] = []
        self.strays: list[Stray] = []
        self.lazy: list[str] = []

    def __enter__(self) -> Self:
        if self.device != "cpu":
            self._parameters = _known(self.model.named_parameters(remove_duplicate=False))
            self._buffers = _known(self.model.named_buffers(remove_duplicate=False))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None or self.device == "cpu":
            return
        parameters = dict(self.model.named_parameters(remove_duplicate=False))
        buffers = dict(self.model.named_buffers(remove_duplicate=False))
        self.lazy = [name for name, tensor in [*parameters.items(), *buffers.items()] if is_lazy(tensor)]
        self._changes += self._untied(parameters)
        for before, after in ((self._parameters, parameters), (self._buffers, buffers)):
            self._changes += self._each(before, after)
        self._shared = [
            (group, [(buffers[name], buffers[name]._version) for name in group])
            for group in _groups({name: id(known.tensor) for name, known in self._buffers.items()})
            if len({id(buffers.get(name)) for name in group}) > 1 and all(name in buffers for name in group)
        ]
        self.strays = [stray for stray in self._left_behind() if stray.tensor.device.type != self.device]
        own = {id(tensor) for tensor in parameters.values()}
        self._replaced = {id(k.tensor): name for name, k in self._parameters.items() if id(k.tensor) not in own}
        self._kept_alive = [known.tensor for known in self._parameters.values() if id(known.tensor) in self._replaced]
        self._parameters, self._buffers = {}, {}

    def look_at(self, optimizers: Iterable[Any]) -> None:
        """See whether optimizers hold parameters that the move replaced or left."""
        if self.device == "cpu":
            return
        own = {id(parameter) for parameter in self.model.parameters()}
        for optimizer in optimizers:
            held = [p for group in getattr(optimizer, "param_groups", ()) for p in group["params"]]
            stale = [self._replaced[id(p)] for p in held if id(p) in self._replaced and id(p) not in own]
            name = type(optimizer).__name__
            if stale:
                self._changes.append(
                    _Change(f"{name} was made before the move and holds the old {_listed(stale)}: it trains nothing")
                )
            left = [p for p in held if isinstance(p, Tensor) and p.device.type == "cpu" and id(p) not in own]
            if len(left) > len(stale):
                count = len(left) - len(stale)
                self._changes.append(_Change(f"{name} holds {count} parameters that are not the model's, on the CPU"))

    def look_at_batch(self, before: Iterable[Tensor], after: Iterable[Tensor]) -> None:
        """See whether the tensors of a batch came to the device with narrower dtypes."""
        narrowed = sorted({f"{_short(a.dtype)} to {_short(b.dtype)}" for a, b in zip(before, after, strict=False)
                           if _narrower(a.dtype, b.dtype)})  # fmt: skip
        if narrowed:
            self._changes.append(_Change(f"moving the batch narrowed tensors from {' and from '.join(narrowed)}"))

    def look_at_shared_buffers(self) -> None:
        """See whether buffers that were one tensor, and are two now, are written: constants may as well be two."""
        now = {id(tensor): tensor for tensor in self.model.buffers()}
        for names, then in self._shared:
            if any(id(tensor) not in now or tensor._version != version for tensor, version in then):
                self._changes.append(
                    _Change(f"the buffers {_listed(names)} were one tensor, are several now, and the steps write them")
                )
        self._shared = []

    def observations(self, use: Mapping[str, str], error: str | None) -> list[Observation]:
        """What the move changed: of a place in the code one observation for each module that is concerned, all alike.

        Args:
            use: of the traced step: how strays were used, by name (see `StrayUse`).
            error: what ended the run, if it came to no end. Where it is about devices, every stray may be the next.
        """
        mixed = error is not None and any(sign in error for sign in _MIXED)
        changes = list(self._changes)
        harmful = [stray for stray in self.strays if mixed or use.get(stray.name) == "mixed"]
        unregistered: dict[tuple[str, Line | None], list[str]] = {}
        for stray in harmful:
            if isinstance(stray.tensor, nn.Parameter):
                unregistered.setdefault((stray.module, stray.line), []).append(stray.name)
            else:
                changes.append(_Change(f"{stray.name} stayed on the CPU: {_NO_MEMBER}", stray.module, stray.line))
        for (module, line), names in unregistered.items():
            changes.append(_Change(f"{_listed(names)} stayed on the CPU: {_UNREGISTERED}", module, line, _REGISTER))
        if self.lazy:
            changes.append(_Change(
                f"{_listed(self.lazy)}: lazy, and still without a shape after one forward, so no optimizer trains them"
            ))  # fmt: skip
        places: dict[Line | None, list[_Change]] = {}
        for change in changes:
            places.setdefault(change.line, []).append(change)
        return [seen for line, found in places.items() for seen in self._of_place(line, found)]

    def harmless(self, use: Mapping[str, str]) -> str | None:
        """One sentence on the tensors that stayed on the CPU and did no harm in the traced step; None without any."""
        copied = [stray.name for stray in self.strays if use.get(stray.name) == "copied"]
        alone = [stray.name for stray in self.strays if use.get(stray.name) == "alone"]
        unused = [stray.name for stray in self.strays if stray.name not in use]
        parts = [
            f"{what}: {_listed(names)}"
            for what, names in (
                ("copied to the device in every step", copied),
                ("computed with on the CPU", alone),
                ("not used in the traced step", unused),
            )
            if names
        ]
        return "; ".join(parts) if parts else None

    def _of_place(self, line: Line | None, found: list[_Change]) -> Iterator[Observation]:
        texts = list(dict.fromkeys(change.text for change in found))
        more = f"; and {len(texts) - _MOST_NAMED} more" if len(texts) > _MOST_NAMED else ""
        named = dict.fromkeys(change.module for change in found if change.module is not None)
        remedy = next((change.remedy for change in found if change.remedy is not None), None)
        for module in named or (None,):
            yield Observation(
                rule="NST107",
                phase="setup",
                site=self._policy.site(*line) if line is not None else None,
                module=type(self.model).__name__ if module == "" else module,
                witnesses=frozenset({"move"}),
                message="; ".join(texts[:_MOST_NAMED]) + more,
                remedy=remedy,
            )

    def _untied(self, after: Mapping[str, Tensor]) -> Iterator[_Change]:
        for group in _groups({name: id(known.tensor) for name, known in self._parameters.items()}):
            now = {name: id(after[name]) for name in group if name in after}
            if len(set(now.values())) > 1:
                yield _Change(
                    f"{_listed(group)} were one parameter before the move, and are {len(set(now.values()))} now"
                )
        objects = {id(known.tensor): (name, known) for name, known in self._parameters.items()}
        for group in _groups({name: known.storage for name, known in objects.values() if known.storage}):
            if len({_storage(after[name]) for name in group if name in after}) > 1:
                yield _Change(f"{_listed(group)} shared their memory before the move, and do not now")

    def _each(self, before: Mapping[str, _Known], after: Mapping[str, Tensor]) -> Iterator[_Change]:
        left, narrowed, changed = [], [], []
        for name, known in before.items():
            now = after.get(name)
            if now is None or is_lazy(now):
                continue
            if now.device.type != self.device:
                left.append(name)
            elif _narrower(known.dtype, now.dtype):
                narrowed.append(f"{name} from {_short(known.dtype)} to {_short(now.dtype)}")
            elif known.values is not None and known.dtype == now.dtype and not _same(known.values, now):
                changed.append(name)
        if left:
            yield _Change(f"{_listed(left)} stayed on the {'CPU' if self.device != 'cpu' else 'device'}")
        if narrowed:
            yield _Change(f"the move narrowed {_listed(narrowed)}")
        if changed:
            yield _Change(f"{_listed(changed)} have other values after the move")

    def _left_behind(self) -> Iterator[Stray]:
        """Every tensor that modules hold as attributes, or their classes and files as values, and in containers."""
        kept = {id(tensor) for tensor in (*self.model.parameters(), *self.model.buffers())}
        seen: set[int] = set()
        for name, module in self.model.named_modules():
            for attribute, value in list(vars(module).items()):
                if attribute.startswith("_") and attribute in _INTERNAL:
                    continue
                prefix = f"{name}.{attribute}" if name else attribute
                for path, tensor in _tensors(prefix, value):
                    if id(tensor) not in kept | seen:
                        seen.add(id(tensor))
                        yield Stray(path, name, tensor, _assignment(type(module), attribute))
        for cls in dict.fromkeys(cls for module in self.model.modules() for cls in type(module).__mro__):
            yield from self._of_code(cls, kept, seen)

    def _of_code(self, cls: type, kept: set[int], seen: set[int]) -> Iterator[Stray]:
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
        if file is None or self._policy.rank(file) != 2:  # of libraries nobody knows what it is for
            return
        holders = ((f"{cls.__name__}.", vars(cls)), (f"{Path(file).name}: ", vars(sys.modules[cls.__module__])))
        for prefix, values in holders:
            for attribute, value in list(values.items()):
                for path, tensor in _tensors(f"{prefix}{attribute}", value):
                    if id(tensor) not in kept | seen:
                        seen.add(id(tensor))
                        yield Stray(path, "", tensor, _module_assignment(file, attribute))


class StrayUse(WatchingMode):  # type: ignore[no-untyped-call]
    """Sees what a step does with tensors that stayed on the CPU.

    Args:
        strays: to look for, by their memory.
        device: type of the device.

    Attributes:
        use: by name: ``mixed`` beside tensors of the device, ``copied`` as it is, or ``alone`` in ops of the CPU.
    """

    def __init__(self, strays: Iterable[Stray], device: str) -> None:
        super().__init__()
        self._names = {_storage(stray.tensor): stray.name for stray in strays}
        self._device = device
        self._lock = threading.Lock()
        self.use: dict[str, str] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run `func` as it is, and look at its tensors."""
        kwargs = kwargs or {}
        tensors = [value for _, value in _tensors("", [args, kwargs])]
        names = [self._names[_storage(t)] for t in tensors if t.device.type == "cpu" and _storage(t) in self._names]
        if names:
            beside = any(tensor.device.type == self._device for tensor in tensors)
            how = "copied" if func.name().partition(".")[0] in _COPIES else "mixed" if beside else "alone"
            with self._lock:
                for name in names:
                    self.use[name] = min(how, self.use.get(name, how), key=("mixed", "alone", "copied").index)
        return func(*args, **kwargs)


_INTERNAL = frozenset(vars(nn.Module()))
_NO_MEMBER = "it is neither parameter nor buffer, and `.to()` moves no others"
_UNREGISTERED = (
    "parameters that the model does not register, so that `.to()` does not move them, model.parameters() leaves them"
    " out of the optimizer, and no checkpoint holds them"
)
_REGISTER = (
    "Keep modules in nn.ModuleList or nn.ModuleDict and parameters in nn.ParameterList or nn.ParameterDict, not in a"
    " plain list, tuple or dict. For a model that is not to be trained, such as a teacher, call its own `.to()`."
)


def _known(named: Iterator[tuple[str, Tensor]]) -> dict[str, _Known]:
    return {
        name: _Known(tensor, 0, tensor.dtype, None)
        if is_lazy(tensor)
        else _Known(tensor, _storage(tensor), tensor.dtype, _few(tensor))
        for name, tensor in named
    }


def _few(tensor: Tensor) -> Tensor | None:
    return picked(tensor, _VALUES) if tensor.layout is torch.strided and not tensor.is_meta else None


def _same(before: Tensor, now: Tensor) -> bool:
    after = _few(now)
    return after is None or torch.equal(before.nan_to_num(), after.nan_to_num())


def _storage(tensor: Tensor) -> int:
    """The address of a tensor's memory; nought where it has none to share."""
    if tensor.layout is not torch.strided or tensor.is_meta:
        return 0
    try:
        return tensor.untyped_storage().data_ptr() if tensor.numel() else 0
    except (RuntimeError, NotImplementedError):  # a subclass without storage
        return 0


def _groups(keys: Mapping[str, int]) -> list[tuple[str, ...]]:
    """Names with the same key, where there are several."""
    groups: dict[int, list[str]] = {}
    for name, key in keys.items():
        groups.setdefault(key, []).append(name)
    return [tuple(names) for names in groups.values() if len(names) > 1]


def _narrower(before: torch.dtype, after: torch.dtype) -> bool:
    return before != after and after.itemsize < before.itemsize


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) for each tensor with dimensions in a value, leaves of autograd only; bounded."""
    waiting: deque[tuple[str, Any, int]] = deque([(name, value, 0)])
    looked = 0
    while waiting and looked < _MOST_ITEMS:
        path, item, depth = waiting.popleft()
        looked += 1
        if isinstance(item, Tensor):
            if item.dim() and item.grad_fn is None:
                yield path, item
        elif depth < _DEPTH:
            waiting.extend((f"{path}{place}", inner, depth + 1) for place, inner in _items(item))


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", inner) for key, inner in list(value.items())[:_MOST_ITEMS])
    elif isinstance(value, (list, tuple, deque)):
        yield from ((f"[{place}]", inner) for place, inner in enumerate(list(value)[:_MOST_ITEMS]))
    elif isinstance(value, (set, frozenset)):
        yield from (("{…}", inner) for inner in list(value)[:_MOST_ITEMS])
    elif isinstance(value, nn.Module):  # kept in one of the above: what is registered is known already
        members = itertools.chain(value.named_parameters(), value.named_buffers())
        yield from ((f".{name}", tensor) for name, tensor in itertools.islice(members, _MOST_ITEMS))
    elif is_dataclass(value) and not isinstance(value, type):
        yield from ((f".{field.name}", getattr(value, field.name, None)) for field in fields(value))


def _assignment(cls: type, attribute: str) -> Line | None:
    """The line of ``self.<attribute> = …`` in a class or its bases."""
    for base in cls.__mro__:
        line = _found_in(base, lambda node: _assigns(node, lambda to: (
            isinstance(to, ast.Attribute) and to.attr == attribute
            and isinstance(to.value, ast.Name) and to.value.id == "self"
        )))  # fmt: skip
        if line is not None:
            return line
    return None


def _module_assignment(file: str, name: str) -> Line | None:
    """The line of ``<name> = …`` in a file."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        if _assigns(node, lambda to: isinstance(to, ast.Name) and to.id == name):
            return file, node.lineno  # type: ignore[attr-defined]
    return None


def _found_in(cls: type, wanted: Callable[[ast.AST], bool]) -> Line | None:
    try:
        file = inspect.getsourcefile(cls)
        lines, start = inspect.getsourcelines(cls)
        tree = ast.parse(_dedented(lines))
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    node = next((node for node in ast.walk(tree) if wanted(node)), None)
    return (file, start + node.lineno - 1) if file is not None and node is not None else None  # type: ignore[attr-defined]


def _dedented(lines: list[str]) -> str:
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "".join(line[indent:] if line[:indent].isspace() else line for line in lines)


def _assigns(node: ast.AST, to: Callable[[ast.expr], bool]) -> bool:
    if isinstance(node, ast.Assign):
        return any(to(part) for target in node.targets for part in _parts(target))
    return isinstance(node, ast.AnnAssign) and node.value is not None and to(node.target)


def _parts(target: ast.expr) -> list[ast.expr]:
    return list(target.elts) if isinstance(target, (ast.Tuple, ast.List)) else [target]
