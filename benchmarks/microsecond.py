# mypy: allow-untyped-calls
"""Where a microsecond goes: the tiny op on the emulated device, taken apart.

    python -m benchmarks.microsecond

The device's kernel of ``aten::add.Tensor`` is replaced, in turn, by kernels that do more and more of what it does; all
are called as a user calls them, by ``torch.add``. What a part costs is the difference between two neighbours, of the
best of many interleaved rounds; a difference of less than 0.1 us is noise. All of them start from a C++ kernel that
does next to nothing, which is what PyTorch's binding and dispatcher cost by themselves.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import smoketest
from benchmarks.device import CALLS, adding
from benchmarks.figures import Figure, Part, Setting, told
from smoketest.devices.emulated import compat
from smoketest.devices.emulated.crossing import CPU_TAG, leave_plain, retag
from smoketest.devices.emulated.kernels import Kernel

TABLE = "microsecond"
DEVICE = "the device's own kernel"


def measure(setting: Setting) -> Iterator[Figure]:
    """Each part, in microseconds, and the sum."""
    torch.set_num_threads(1)
    smoketest.emulate(warn=False)
    x, y = torch.ones(4, 4).to("neuron"), torch.ones(4, 4)
    rounds = setting.turns(200)
    with torch.no_grad():
        least = _least(kernels(), x, rounds)
        cpu, bare = _each(adding(y), rounds), _each(_asking(y), rounds)
    whole = least[DEVICE]
    steps = {"the binding and the dispatcher (`torch.is_same_size`, a C++ kernel that does nothing)": bare}
    before = bare
    for name, took in least.items():
        if name != DEVICE:
            steps[name], before = took - before, took
    for name, took in steps.items():
        share = Part(name="share of the whole", value=took / whole, unit="")
        yield Figure(table=TABLE, name=name, value=took * 1e6, unit="us", made_of=(share,))
    yield Figure(table=TABLE, name="what these do not explain", value=(whole - before) * 1e6, unit="us")
    yield Figure(table=TABLE, name=f"`torch.add`, {DEVICE}", value=whole * 1e6, unit="us")
    yield Figure(table=TABLE, name="`torch.add` on the CPU", value=cpu * 1e6, unit="us")


def kernels() -> dict[str, Kernel | None]:
    """Kernels for two device tensors, each doing what the one before it does and one thing more; None: the device's."""
    add = compat.raw_call(torch.ops.aten.add.Tensor)
    to_dlpack, from_dlpack = compat.to_dlpack, compat.from_dlpack
    ran: set[str] = set()
    note, acting = ran.add, False

    def enter(x: Any, y: Any) -> Any:
        return x

    def alias(x: Any, y: Any) -> Any:
        one, other = to_dlpack(x), to_dlpack(y)
        retag(one, CPU_TAG)
        retag(other, CPU_TAG)
        from_dlpack(one), from_dlpack(other)
        return x

    def redispatch(x: Any, y: Any) -> Any:
        one, other = to_dlpack(x), to_dlpack(y)
        retag(one, CPU_TAG)
        retag(other, CPU_TAG)
        add(from_dlpack(one), from_dlpack(other))
        return x

    def wrap(x: Any, y: Any) -> Any:
        one, other = to_dlpack(x), to_dlpack(y)
        retag(one, CPU_TAG)
        retag(other, CPU_TAG)
        return leave_plain(add(from_dlpack(one), from_dlpack(other)))

    def check(x: Any, y: Any = None, *rest: Any, **kwargs: Any) -> Any:
        if isinstance(x, Tensor) and isinstance(y, Tensor) and not x.is_cpu and not y.is_cpu:
            one, other = to_dlpack(x), to_dlpack(y)
            retag(one, CPU_TAG)
            retag(other, CPU_TAG)
            return leave_plain(add(from_dlpack(one), from_dlpack(other), *rest, **kwargs))
        raise AssertionError("two tensors of the device are given")

    def track(*args: Any, **kwargs: Any) -> Any:
        note("aten::add.out")
        return check(*args, **kwargs) if not acting else None

    return {
        "the entry into a Python kernel and the way back": enter,
        "CPU aliases of two arguments": alias,
        "the op itself on the CPU, called from Python": redispatch,
        "the device's tensor for the result": wrap,
        "looking at the arguments": check,
        "the tracker": track,
        DEVICE: None,
    }


def _least(versions: dict[str, Kernel | None], x: Tensor, rounds: int) -> dict[str, float]:
    """The least seconds of one call with each kernel in place, all of them in turn."""
    least = dict.fromkeys(versions, float("inf"))
    run = adding(x)
    for _ in range(rounds):
        for name, kernel in versions.items():
            library = torch.library.Library("aten", "IMPL") if kernel is not None else None
            if library is not None:
                library.impl("add.Tensor", kernel, "PrivateUse1", allow_override=True)
            run()  # PyTorch builds its table anew
            least[name] = min(least[name], _once(run))
            if library is not None:
                library._destroy()
    return least


def _each(run: Callable[[], None], rounds: int) -> float:
    return min(_once(run) for _ in range(rounds))


def _once(run: Callable[[], None]) -> float:
    started = time.perf_counter()
    run()
    return (time.perf_counter() - started) / CALLS


def _asking(x: Tensor) -> Callable[[], None]:
    """As many calls of an op that only compares two sizes."""

    def run() -> None:
        for _ in range(CALLS):
            torch.is_same_size(x, x)

    return run


if __name__ == "__main__":
    sys.exit(told(measure))
