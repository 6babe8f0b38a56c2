"""The copies witness: traffic between device and host inside ops that count as native, on a real device.

It takes a step of its own, after the traced one, in which PyTorch's execution trace records every op that C++
dispatches, nested ones too, with the device of each tensor; a mark around each call that the dispatch mode sees tells
in which call of the user's, or of autograd's, a copy was made. A pre-release also moved tensors through two functions
of its extension module, inside kernels that count as native ([PRE] internals 2.9: its own tests replace them to count).
They are looked for, not assumed. A copy may be seen by both, so the larger count is told.

What it cannot see: traffic that neither goes through PyTorch's dispatcher nor through those functions, such as direct
calls of the runtime from C++. On the emulated device there is nothing to look for: its kernels make no copies.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch.autograd.profiler import record_function

from smoketest.devices import neuron_compat
from smoketest.devices.neuron_compat import COPY_FUNCTIONS
from smoketest.witness.compat import ExecutionTrace
from smoketest.witness.context import Context
from smoketest.witness.dispatch import Calls, DispatchWitness, OpKey
from smoketest.witness.sites import Origins

__all__ = ["Copies", "Crossing", "MarkingWitness", "crossings"]

_MARK = "smoketest call "
_MAX_TRACE = 512 * 2**20  # about 200,000 op calls with what they call; reading takes several times that
_COPIES = frozenset(
    {
        "aten::to", "aten::_to_copy", "aten::copy_", "aten::_copy_from", "aten::_copy_from_and_resize",
        "aten::_to_cpu", "aten::item", "aten::_local_scalar_dense",
    }
)  # fmt: skip
_READS = frozenset({"aten::item", "aten::_local_scalar_dense"})


class Copies:
    """Counts the backend's copies that go through its Python functions while entered, by thread.

    Args:
        module: the extension module, as `neuron_compat.copy_module` found it.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._originals: dict[str, Callable[..., Any]] = {}
        self._counts: dict[int, int] = {}

    def __enter__(self) -> Self:
        for name in COPY_FUNCTIONS:
            self._originals[name] = getattr(self._module, name)
            setattr(self._module, name, self._counting(self._originals[name]))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, original in self._originals.items():
            setattr(self._module, name, original)

    def take(self) -> int:
        """Copies on this thread since it last asked."""
        return self._counts.pop(threading.get_ident(), 0)

    def _counting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def copy(*args: Any, **kwargs: Any) -> Any:
            thread = threading.get_ident()
            self._counts[thread] = self._counts.get(thread, 0) + 1
            return original(*args, **kwargs)

        return copy


class MarkingWitness(DispatchWitness):
    """A dispatch witness in whose `calls` the copies inside each call are counted as well.

    It records while it is entered; when it is left, `calls` are complete. The arguments are those of `DispatchWitness`.

    Attributes:
        problem: why PyTorch's execution trace does not tell, a clause; None where it does. The backend's own functions
            are counted all the same, where it has them.
    """

    def __init__(
        self, origins: Origins, context: Context, torch_device: str, taken: Callable[[], Collection[str]]
    ) -> None:
        module = neuron_compat.copy_module()
        self._functions = Copies(module) if module is not None else None
        copied = self._functions.take if self._functions is not None else None
        super().__init__(origins, context, torch_device, taken, copied=copied)
        self.problem: str | None = None
        self._keys: dict[int, OpKey] = {}
        self._numbers = count()
        self._current = threading.local()
        self._around = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="smoketest-"))
            file = Path(folder) / "trace.json"
            stack.callback(self._read, file)
            if self._functions is not None:
                stack.enter_context(self._functions)
            if not stack.enter_context(ExecutionTrace(file)).recording:
                self.problem = "PyTorch's execution trace cannot be recorded in this process"
            self._around = stack.pop_all()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._around.close()

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an op within a mark that the trace records."""
        number = self._current.number = next(self._numbers)
        with record_function(f"{_MARK}{number}"):
            return func(*args, **kwargs)

    def counted(self, key: OpKey, calls: Calls) -> None:
        """The call whose mark was made last on this thread is one of `key`."""
        self._keys[self._current.number] = key

    def _read(self, file: Path) -> None:
        if self.problem is not None:
            return
        if file.stat().st_size > _MAX_TRACE:
            self.problem = "PyTorch's execution trace of the step is too large to be read"
            return
        seen: dict[OpKey, list[Crossing]] = {}
        try:
            trace = json.loads(file.read_text(encoding="utf-8", errors="replace"))
            for crossing in crossings(trace, self.torch_device):
                if crossing.call in self._keys:
                    seen.setdefault(self._keys[crossing.call], []).append(crossing)
        except (ValueError, KeyError, TypeError, RecursionError):
            self.problem = "PyTorch's execution trace cannot be understood"
            return
        for key, found in seen.items():
            calls = self.calls[key]
            calls.copies = max(calls.copies, len(found))
            calls.copied_bytes = sum(crossing.bytes for crossing in found)


@dataclass(frozen=True)
class Crossing:
    """One copy between device and host.

    Attributes:
        call: number of the mark around it.
        op: that made it.
        bytes: that crossed.
    """

    call: int
    op: str
    bytes: int


def crossings(trace: dict[str, Any], device: str) -> Iterator[Crossing]:
    """Copies between `device` and the host inside marked calls; one that others make up is told once, the outermost.

    Args:
        trace: an execution trace as PyTorch writes it (schema 1.x): nodes with the number of the node around them
            (``ctrl_deps``), and tensors as lists that end with a device (``neuron:0``).
        device: type of the device.
    """
    nodes = {node["id"]: node for node in trace["nodes"]}
    for node in nodes.values():
        size = _crossing_bytes(node, device)
        if size is None:
            continue
        for around in _around(node, nodes):
            if _crossing_bytes(around, device) is not None:
                break
            if around["name"].startswith(_MARK):
                yield Crossing(int(around["name"].removeprefix(_MARK)), node["name"], size)
                break


def _around(node: dict[str, Any], nodes: dict[int, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The nodes around one, innermost first."""
    above = nodes.get(node["ctrl_deps"])
    while above is not None and above["ctrl_deps"] != above["id"]:
        yield above
        above = nodes.get(above["ctrl_deps"])


def _crossing_bytes(node: dict[str, Any], device: str) -> int | None:
    """Bytes of the device's tensors in a copy between it and the host; None for any other node."""
    if node["name"] not in _COPIES:
        return None
    tensors = list(_tensors((node["inputs"]["values"], node["outputs"]["values"])))
    on_device = [numel * itemsize for numel, itemsize, where in tensors if where.partition(":")[0] == device]
    on_host = any(where == "cpu" for _, _, where in tensors) or node["name"] in _READS
    return max(on_device) if on_device and on_host else None


def _tensors(values: Iterable[Any]) -> Iterator[tuple[int, int, str]]:
    """(elements, bytes of one, device) of each tensor in nested lists."""
    for value in values:
        if not isinstance(value, (list, tuple)):
            continue
        if len(value) == 6 and isinstance(value[5], str) and all(isinstance(number, int) for number in value[:5]):
            yield value[3], value[4], value[5]
        else:
            yield from _tensors(value)
