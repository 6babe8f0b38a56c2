"""What of torch-neuronx is undocumented or private, in one place: looked for, and never assumed.

A name that a release does not have makes a witness unavailable, which a report says; it never ends a run. `missing`
says which ones an installed release lacks, and the suite in tests/neuron fails loudly over each.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = [
    "COPY_FUNCTIONS",
    "NAMES",
    "Name",
    "compilations",
    "copy_module",
    "function",
    "missing",
    "only_on_cpu",
    "synchronizer",
]


@dataclass(frozen=True)
class Name:
    """A name this package would like to use.

    Attributes:
        path: where it is looked for, modules and attributes.
        source: where it is known from, with its grade of evidence.
        without: what a report cannot tell where it is missing.
    """

    path: str
    source: str
    without: str


FALLBACKS = Name(
    "torch_neuronx.get_fallback_ops",
    "[PRE] torch_neuronx/__init__.py; seen up to beta 4 [USER-B4] xpu-perf",
    "which ops ran on the CPU",
)
CLEAR = Name("torch_neuronx.clear_op_tracking", FALLBACKS.source, FALLBACKS.without)
EXECUTED = Name("torch_neuronx.get_executed_ops", FALLBACKS.source, "whether anything ran on the device")
CACHE = Name(
    "torch_neuronx._C._get_compilation_cache_stats",
    "[PRE] internals, section 5",
    "how many compilations a step waited for",
)
COPY_FUNCTIONS = ("_nrt_copy_neuron_to_cpu_tensor", "_nrt_copy_cpu_to_neuron_tensor")
_COPIES = tuple(
    Name(f"torch_neuronx._C.{name}", "[PRE] internals 2.9: the project's own tests replace it", "hidden copies")
    for name in COPY_FUNCTIONS
)
SYNCHRONIZE = (
    Name("torch.neuron.synchronize", "[PRE] internals, section 5; [PUB] how-to-profile page", "where an error belongs"),
    Name("torch_neuronx.synchronize", "[PRE] torch_neuronx/__init__.py", "where an error belongs"),
    Name("torch.accelerator.synchronize", "PyTorch's own, for whatever accelerator there is", "where an error belongs"),
)

NAMES = (FALLBACKS, CLEAR, EXECUTED, CACHE, *_COPIES, *SYNCHRONIZE)


def function(name: Name) -> Callable[..., Any] | None:
    """What is there under a name, if it can be called; imports the modules of the path."""
    *modules, last = name.path.split(".")
    try:
        importlib.import_module("torch")  # first, as torch loads the package by an entry point of it
        found = importlib.import_module(modules[0])
        for part in modules[1:]:
            found = getattr(found, part, None) or importlib.import_module(f"{found.__name__}.{part}")
        wanted = getattr(found, last, None)
    except Exception:  # absent, or another product's, which may raise what it likes
        return None
    return wanted if callable(wanted) else None


def missing() -> tuple[Name, ...]:
    """The names that the installed release does not have; loads it."""
    return tuple(name for name in NAMES if function(name) is None)


def synchronizer() -> Callable[[], Any] | None:
    """What waits for the device, and was seen to; None where no known name does. Nothing may be pending there."""
    for name in SYNCHRONIZE:
        found = function(name)
        if found is not None:
            with contextlib.suppress(Exception):  # it is there, and this backend does not support it
                found()
                return found
    return None


def copy_module() -> Any | None:
    """The extension module, where it has the functions through which a pre-release copied to and from the host."""
    if any(function(name) is None for name in _COPIES):
        return None
    return importlib.import_module("torch_neuronx._C")


def only_on_cpu(overload: str) -> bool:
    """Whether PyTorch's table has a kernel of the CPU's for an overload, and none that another backend would use."""
    torch = importlib.import_module("torch")
    others = ("PrivateUse1", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
    try:
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        return bool(has(overload, "CPU")) and not any(has(overload, key) for key in others)
    except (AttributeError, RuntimeError):  # private, or no such overload
        return False


def compilations() -> int | None:
    """How many graphs and ops this process has compiled; None where the release does not tell."""
    ask = function(CACHE)
    if ask is None:
        return None
    try:
        count = ask()["total_compilations"]
    except Exception:  # private: another shape is no reason to end a run
        return None
    return count if isinstance(count, int) else None


def main() -> None:
    """Print which of the names the installed release has, as JSON: what to look at first on a new release."""
    sys.stdout.write(json.dumps({name.path: function(name) is not None for name in NAMES}, indent=2) + "\n")


if __name__ == "__main__":
    main()
