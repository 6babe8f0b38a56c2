# mypy: allow-untyped-calls
"""Registering the device: kernels for what the profile lists, a recorder for everything else, composites left alone.

Composites and structured ops stay PyTorch's own, so what they call, and the names that are recorded, come out as on
the device: the same dispatcher produces them.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

from smoketest.devices.emulated import (
    attention,
    autocast,
    compat,
    compiler,
    crossing,
    distributed,
    faults,
    geometry,
    kernels,
    memory,
    neuron_module,
    ranks,
    recovery,
    substitutes,
)
from smoketest.devices.emulated import tracker as tracking
from smoketest.devices.emulated.compat import NAME, Overload, has_kernel, on_cpu_key
from smoketest.devices.emulated.crossing import to_cpu_with_bits
from smoketest.devices.emulated.kernels import Kernel, is_view, kernel_for, view_kernel
from smoketest.devices.emulated.limits import Limits
from smoketest.devices.emulated.recovery import Recovery
from smoketest.devices.emulated.substitutes import KERNELS, SUBSTITUTES
from smoketest.devices.emulated.tracker import Tracker
from smoketest.operators.functional import overload
from smoketest.operators.profile import OperatorProfile

__all__ = ["install", "kept_out"]

_aten = torch.ops.aten
_to_copy = on_cpu_key(_aten._to_copy.default)

_WRITTEN_HERE: dict[str, tuple[str, Kernel]] = {
    # overload without namespace -> (the name it is tracked under, its kernel)
    "empty.memory_format": ("aten::empty.memory_format", geometry.empty),
    "empty_strided": ("aten::empty_strided", geometry.empty_strided),
    "resize_": ("aten::resize_", geometry.resize_),
    "set_": ("aten::set_", geometry.set_to_nothing),
    # PyTorch's composite copy_ ends here; the device has a kernel of that name.
    "_copy_from": ("aten::copy_", geometry.copy_from),
    "_copy_from_and_resize": ("aten::_copy_from_and_resize", geometry.copy_from_and_resize),
    # non_blocking would ask for pinned memory
    "_to_copy": ("aten::_to_copy", lambda t, *, non_blocking=False, **kwargs: _to_copy(t, **kwargs)),
    "new_empty": ("aten::new_empty", geometry.new_empty),
    "_local_scalar_dense": ("aten::_local_scalar_dense", lambda t: to_cpu_with_bits(t).item()),
    "record_stream": ("aten::record_stream", lambda t, stream: None),
    # Without this, .to(device) builds new Parameters and silently unties tied weights.
    "_has_compatible_shallow_copy_type": ("aten::_has_compatible_shallow_copy_type", lambda a, b: True),
}
_WITHOUT_MEMORY = {"aten::_efficientzerotensor": geometry.zeros}
"""Ops whose CPU result has no memory to share, native or not, and what stands in for them."""
_SET_STORAGE = ("set_.source_Tensor", "set_.source_Storage", "set_.source_Storage_storage_offset")
_COMPOSITES_WITH_A_KERNEL = frozenset(
    {
        "aten::linear",
        "aten::_fused_rms_norm",
        "aten::value_selecting_reduction_backward",
        "aten::argsort.stable",
        "aten::isfinite",
        "aten::one_hot",
    }
)
"""What PyTorch makes of other ops unless a backend has a kernel; it has a formula for their gradients, or they none."""

_COMPUTED_BY = ("CPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
_COMPOSITES_THAT_DO = frozenset({"copy_"})
"""Native on the device, and composites of PyTorch's that end in a kernel written here: same result, one kernel more."""


def install(profile: OperatorProfile, tracker: Tracker, continues: Callable[[], bool], limits: Limits) -> list[Any]:
    """Give this process the device; it cannot be taken back.

    Args:
        profile: which overloads have a kernel of their own.
        tracker: told what runs.
        continues: whether an op without any kernel is computed by a substitute instead of raising.
        limits: told of tensors that are made; kernels keep to them.

    Returns:
        What must stay alive as long as the process: PyTorch drops the kernels of a library that is collected.
    """
    compat.register_backend(neuron_module)
    library = torch.library.Library("aten", "IMPL")
    every = torch.library.Library("_", "IMPL")
    _register_kernels(library, profile, tracker, limits)
    if {attention.FUSED, attention.BACKWARD} <= profile.native:
        for key in ("AutogradPrivateUse1", "PrivateUse1"):  # the second in inference mode
            library.impl("scaled_dot_product_attention", attention.attention, key)
    if {"aten::rms_norm", "aten::_fused_rms_norm", "aten::_fused_rms_norm_backward"} <= profile.native:
        for key in ("AutogradPrivateUse1", "PrivateUse1"):
            library.impl("rms_norm", _rms_norm(tracker), key)
    every.fallback(_boxed_fallback(profile, tracker, continues, limits), "PrivateUse1")
    for key in ("Conjugate", "Negative"):
        # Their fallbacks resolve an argument by copying it, and copying calls _copy_from: endless in C++.
        library.impl("_copy_from", torch.library.fallthrough_kernel, key)
    # A DataLoader pins memory when there is an accelerator; the memory of this one needs no pinning.
    library.impl("_pin_memory", memory.pin, "CPU")
    library.impl("is_pinned", memory.is_pinned, "CPU")
    autocast.install(library, every)
    compat.patch(crossing.to_neuron)
    compat.before_making_duals(limits.making_a_dual)
    for module in kept_out():
        compat.keep_out_of_dynamo(module)
    compat.when_dynamo_is_imported(compiler.register)
    distributed.install(tracker)
    return [library, every]


def kept_out() -> tuple[types.ModuleType, ...]:
    """The modules whose functions run while an op does, and that Dynamo must never trace."""
    here = sys.modules[__name__]
    return (
        attention,
        autocast,
        compat,
        compiler,
        crossing,
        *distributed.MODULES,
        faults,
        geometry,
        here,
        kernels,
        memory,
        neuron_module,
        ranks,
        recovery,
        sys.modules[Limits.__module__],
        substitutes,
        tracking,
    )


def _register_kernels(
    library: torch.library.Library, profile: OperatorProfile, tracker: Tracker, limits: Limits
) -> None:
    registered: set[str] = set()
    recover = Recovery(profile, tracker)

    def register(name: str, tracked_as: str, kernel: Kernel, limited: Kernel | None = None) -> None:
        if name not in registered:
            registered.add(name)
            library.impl(name, _tracked(tracker, recover, limits, tracked_as, kernel, limited or kernel), "PrivateUse1")

    for name, (tracked_as, kernel) in _WRITTEN_HERE.items():
        register(name, tracked_as, _noting(limits, tracker, name, kernel))
    register("clone", "aten::clone", _noting(limits, tracker, "clone", kernel_for(_known("clone"))))
    for name in _SET_STORAGE:
        register(name, f"aten::{name}", on_cpu_key(_known(name)))
    registered |= _COMPOSITES_THAT_DO
    # A structured op called in its functional or in-place form gets the kernel of that form at once: the result is
    # the same, one allocation cheaper, and the tracker is told the .out name PyTorch would have reached.
    through_out = {name: out for name, out in profile.reaches.items() if out in profile.registered_by}
    for full_name, kernel in ((attention.FUSED, attention.fused), (attention.BACKWARD, attention.fused_backward)):
        if full_name in profile.native:
            register(full_name.removeprefix("aten::"), full_name, kernel)
    for full_name in sorted(profile.native) + sorted(through_out):
        op, name = overload(full_name), full_name.removeprefix("aten::")
        if op is not None and full_name.startswith("aten::"):
            native = _native_kernel(op)
            if native is not None:
                tracked_as = through_out.get(full_name, full_name)
                computes = profile.registered_by.get(tracked_as) == "torch_mlir" and not is_view(op)
                slow = limits.narrowed(op, native) if computes else None
                register(name, tracked_as, native, slow)


def _rms_norm(tracker: Tracker) -> Kernel:
    """``aten::rms_norm`` by the fused op, as the backend has it at both keys ([PRE] internals 1.1 and 1.3)."""

    def rms_norm(x: Any, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:
        if x.is_complex():  # the fused op has no gradient there
            return _aten.rms_norm.default.decompose(x, normalized_shape, weight, eps)
        tracker.executed.add("aten::rms_norm")
        return _aten._fused_rms_norm.default(x, normalized_shape, weight, eps)[0]

    return rms_norm


def _noting(limits: Limits, tracker: Tracker, name: str, kernel: Kernel) -> Kernel:
    """The kernel, with the limits told what it is asked for; itself where none speaks of it."""

    def making(size: Any, *args: Any, **kwargs: Any) -> Any:
        limits.making(size, kwargs.get("dtype"))
        limits.laying_out("empty", kwargs.get("memory_format"))
        return kernel(size, *args, **kwargs)

    def laying_out(x: Any, *args: Any, memory_format: Any = None, **kwargs: Any) -> Any:
        if memory_format is None:
            return kernel(x, *args, **kwargs)
        limits.laying_out(name, memory_format)
        return kernel(x, *args, memory_format=memory_format, **kwargs)

    def copying(source: Any, destination: Any, non_blocking: bool = False) -> Any:
        limits.copying(source, destination)
        tracker.copied.add(f"neuron::copy::{source.device.type}_to_{destination.device.type}")
        return kernel(source, destination, non_blocking)

    if name in ("empty.memory_format", "empty_strided"):
        return making
    if name in ("clone", "_to_copy"):
        return laying_out
    return copying if name == "_copy_from" else kernel


def _native_kernel(op: Overload) -> Kernel | None:
    """How this device computes what the real one has a kernel for; None where PyTorch's composite does it."""
    name = op.name()
    if torch.Tag.inplace_view in op.tags:  # squeeze_, t_: they change the tensor itself, which an alias cannot
        return None
    if name in _WITHOUT_MEMORY:
        return _WITHOUT_MEMORY[name]
    if name in KERNELS:
        return kernel_for(op, call=KERNELS[name])
    if name in _COMPOSITES_WITH_A_KERNEL or any(has_kernel(name, key) for key in _COMPUTED_BY):
        return view_kernel(op) if is_view(op) else kernel_for(op)
    if has_kernel(name, "CompositeImplicitAutograd"):
        return None

    def not_computable(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"{NAME}: {name} has a kernel on the device, but PyTorch has none for the CPU, "
            "so the emulated device cannot compute it"
        )

    return not_computable


def _known(name: str) -> Overload:
    op = overload(f"aten::{name}")
    assert op is not None, name
    return op


def _tracked(tracker: Tracker, recover: Recovery, limits: Limits, name: str, kernel: Kernel, limited: Kernel) -> Kernel:
    add, failing, acting = tracker.executed.add, tracker.failing, limits.acting  # every call counts here

    def tracked(*args: Any, **kwargs: Any) -> Any:
        if failing and name in failing:
            return recover.run(name, kernel, args, kwargs)
        add(name)
        observer = tracker.observer
        if observer is not None:
            observer(name, False)
        return limited(*args, **kwargs) if acting else kernel(*args, **kwargs)

    return tracked


def _boxed_fallback(
    profile: OperatorProfile, tracker: Tracker, continues: Callable[[], bool], limits: Limits
) -> Kernel:
    """What an op without a kernel ends in: it is recorded, unless on the view whitelist, and runs on the CPU.

    [PRE] ``neuron_cpu_fallback``: the whitelist holds full names, so ``aten::view_as_real`` is silent and
    ``aten::slice.Tensor`` is not.
    """

    def on_cpu_view(op: Overload) -> Kernel:
        view, copied = view_kernel(op), kernel_for(op, native=False)

        def kernel(*args: Any, **kwargs: Any) -> Any:
            tracker.viewed(op.name())
            if not limits.view_on_cpu():
                return view(*args, **kwargs)
            return tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, copied(*args, **kwargs))

        return kernel

    @functools.cache
    def on_cpu(op: Overload) -> Kernel:
        if op.name() in _WITHOUT_MEMORY:
            return _WITHOUT_MEMORY[op.name()]
        return on_cpu_view(op) if is_view(op) else kernel_for(op, native=False)

    @functools.cache
    def substitute(op: Overload) -> Kernel | None:
        known = SUBSTITUTES.get(op.name())
        return None if known is None or has_kernel(op.name(), "CPU") else kernel_for(op, native=False, call=known)

    def fallback(op: Overload, *args: Any, **kwargs: Any) -> Any:
        name = op.name()
        if name in profile.view_whitelist:
            tracker.ran(name)
        else:
            tracker.fell_back(name)
        if continues():
            instead = substitute(op)
            if instead is not None:
                tracker.continued_past.add(name)
                return instead(*args, **kwargs)
        result = on_cpu(op)(*args, **kwargs)
        limits.made(result)
        return result

    return fallback
