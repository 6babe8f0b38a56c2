"""Distinct op signatures of a step: what an eager device has to compile a kernel for.

TorchNeuron compiles a kernel for each op with its dtypes and shapes, in the step that meets them first ([PUB] best
practices: each op is lowered and compiled by neuronx-cc, then cached). Views, plain copies and empty tensors need none
([PRE] internals 2.10). What a composite calls inside is not seen, but for the ``_foreach_*`` ops without a kernel of
their own, which go from tensor to tensor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from typing import Any, NamedTuple

from torch import Tensor

from smoketest.witness.compat import has_device_kernel
from smoketest.witness.dispatch import Signature, signature_text
from smoketest.witness.hidden import is_view
from smoketest.witness.modes import WatchingMode, tensors_of

__all__ = ["OpSignature", "SignatureMode", "Signatures", "moved"]

_COPIES = frozenset({"aten::_to_copy", "aten::copy_"})
_NO_KERNEL = frozenset(
    {"aten::clone", "aten::empty_like", "aten::empty", "aten::empty_strided", "aten::new_empty",
     "aten::new_empty_strided", "aten::_local_scalar_dense", "aten::set_", "aten::resize_", "aten::record_stream",
     "aten::detach", "aten::lift_fresh", "aten::is_same_size"}
)  # fmt: skip
_MOST_SHOWN = 8
_MOST_TENSORS = 4


class OpSignature(NamedTuple):
    """An op with dtypes and shapes of its tensor arguments and of its first result, as far as it has one."""

    op: str
    arguments: Signature
    result: Signature = ()

    def text(self) -> str:
        """Such as ``f32[4, 128], f32[128, 8]``: the arguments, a long list of them cut; else the result."""
        shown = self.arguments or self.result
        more = ", …" if len(shown) > _MOST_TENSORS else ""
        return signature_text(shown[:_MOST_TENSORS]) + more


class Signatures:
    """Collects the signatures that the device computes.

    Args:
        torch_device: type of the device.
    """

    def __init__(self, torch_device: str) -> None:
        self._torch_device = torch_device
        self.seen: dict[OpSignature, None] = {}
        self.fell_back: set[str] = set()

    def note(self, func: Any, args: Any, kwargs: Any, result: Any, fell_back: Collection[str]) -> None:
        """An op was called, and these of its kernels ran on the CPU."""
        op: str = func.name()
        if fell_back:
            self.fell_back.add(op)
            return
        for arguments, gives in _single_calls(op, (*args, *kwargs.values()), result):
            given, made = list(tensors_of(arguments)), list(tensors_of((gives,)))[:1]
            if self._computes(op, [*given, *made]):
                self.seen[OpSignature(op, _signature(given), _signature(made))] = None

    def compiled(self, fell_back: Collection[str] = ()) -> list[OpSignature]:
        """Signatures of the ops that never fell back, here or among `fell_back`, in the order they came."""
        away = {*self.fell_back, *fell_back}
        return [signature for signature in self.seen if signature.op not in away]

    def _computes(self, op: str, tensors: list[Tensor]) -> bool:
        on_device = [tensor for tensor in tensors if tensor.device.type == self._torch_device]
        base = op.partition(".")[0]
        if not on_device or base in _NO_KERNEL or is_view(op) or not any(tensor.numel() for tensor in on_device):
            return False
        # A copy computes where it casts on the device; else it moves bytes.
        return base not in _COPIES or len({tensor.dtype for tensor in on_device}) > 1


class SignatureMode(WatchingMode):  # type: ignore[no-untyped-call]
    """Has `signatures` note every op that is dispatched while it is entered.

    Args:
        signatures: told of each op.
    """

    def __init__(self, signatures: Signatures) -> None:
        super().__init__()
        self._signatures = signatures

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run `func` as it is."""
        result = func(*args, **(kwargs or {}))
        if func.namespace != "profiler":
            self._signatures.note(func, args, kwargs or {}, result, ())
        return result


def moved(new: Collection[OpSignature], before: Collection[OpSignature]) -> tuple[str, ...]:
    """New signatures in words, a few of them, one for each op first: each with what the op had before."""
    known: dict[str, OpSignature] = {}
    for signature in before:
        known.setdefault(signature.op, signature)
    first_of_each = {signature.op: signature for signature in reversed(list(new))}
    ordered = [*first_of_each.values()][::-1] + [s for s in new if first_of_each[s.op] is not s]
    return tuple(_words(signature, known.get(signature.op)) for signature in ordered[:_MOST_SHOWN])


def _words(signature: OpSignature, before: OpSignature | None) -> str:
    after = f", after {before.text()}" if before is not None and before.text() != signature.text() else ""
    return f"{signature.op} on {signature.text()}{after}"


def _single_calls(op: str, arguments: tuple[Any, ...], result: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Arguments and result; of a ``_foreach_*`` op without a kernel of its own, those of each of its single calls."""
    lists = [value for value in arguments if isinstance(value, (list, tuple)) and _is_of_tensors(value)]
    if not op.startswith("aten::_foreach_") or not lists or _own_kernel(op):
        yield arguments, result
        return
    count = len(lists[0])

    def single(value: Any, index: int) -> Any:
        return value[index] if isinstance(value, (list, tuple)) and len(value) == count else value

    for index in range(count):
        yield tuple(single(value, index) for value in arguments), single(result, index)


def _is_of_tensors(values: Any) -> bool:
    return bool(values) and all(isinstance(value, Tensor) for value in values)


def _signature(tensors: list[Tensor]) -> Signature:
    return tuple((tensor.dtype, tuple(tensor.shape)) for tensor in tensors)


@cache
def _own_kernel(op: str) -> bool:
    return has_device_kernel(op)
