"""The emulated device as an object: one per process, with the tracker of the real one."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from smoketest.devices.emulated import compat, shim
from smoketest.devices.emulated.compat import NAME
from smoketest.devices.emulated.distributed import rules
from smoketest.devices.emulated.distributed.rules import CollectiveRule
from smoketest.devices.emulated.faults import FAULTS
from smoketest.devices.emulated.install import install
from smoketest.devices.emulated.limits import Limits
from smoketest.devices.emulated.ranks import WrittenIndices, local_rank
from smoketest.devices.emulated.tracker import Tracker
from smoketest.errors import DeviceUnavailable
from smoketest.operators.profile import Limit, OperatorProfile, load_profile

__all__ = ["EmulatedDevice", "emulate"]

BLOCKING = "NEURON_LAUNCH_BLOCKING"
"""[PUB] env-vars page; unset counts as 1, the default of release builds ([PRE] ``_build_config.py``)."""

_installed: list[EmulatedDevice] = []


class EmulatedDevice:
    """A ``neuron`` device in this process whose memory and arithmetic are the CPU's.

    Made by `emulate`; there is one per process, for PyTorch can rename its spare backend only once.

    Attributes:
        profile: which overloads the device has kernels for.
        continue_past_errors: compute LSTM and GRU cells, for which neither the device nor the CPU has a kernel, from
            other ops instead of raising. What the device would have raised on is then in `continued_past`.
    """

    name = NAME

    def __init__(self, profile: OperatorProfile, *, warn: bool = True) -> None:
        if compat.backend_name() != "privateuseone":
            raise DeviceUnavailable(
                f"this process already has a device {compat.backend_name()!r}, and PyTorch has room for one",
                hint="start Python with TORCH_DEVICE_BACKEND_AUTOLOAD=0 to keep torch-neuronx from loading itself",
            )
        self.profile = profile
        self.continue_past_errors = False
        self._tracker = Tracker()
        self._tracker.warn = warn
        self._limits = Limits(profile)
        self._keep_alive = install(profile, self._tracker, lambda: self.continue_past_errors, self._limits)

    @property
    def warn(self) -> bool:
        """Whether an op warns the first time it falls back."""
        return self._tracker.warn

    @warn.setter
    def warn(self, on: bool) -> None:
        self._tracker.warn = on

    def get_fallback_ops(self) -> list[str]:
        """Names of the overloads that ran on the CPU since the last `clear_op_tracking`: unique, in no order."""
        return list(self._tracker.fallen_back)

    def get_executed_ops(self) -> list[str]:
        """Names of what the device's kernels ran since the last `clear_op_tracking`, in no order.

        As the backend's tracker has them ([PRE] internals 2.6): kernels in C++ without their overload
        (``aten::empty``); the others in full, and as it runs synchronously, the default of release builds, their short
        name too (``aten::add.Tensor`` and ``add``). With ``NEURON_LAUNCH_BLOCKING=0`` it names no short ones, but
        copies (``neuron::copy::cpu_to_neuron``). A fallback leaves ``aten::_to_copy``. Not emulated: names of memory
        hints and events, of concatenated ops, and what lazy materialisation of views leaves out.
        """
        tracker, how = self._tracker, self.profile.registered_by
        names = {name.partition(".")[0] if how.get(name) == "cpp" else name for name in tracker.executed}
        if os.environ.get(BLOCKING, "1") != "1":
            return list(names | tracker.copied)
        short = {name.removeprefix("aten::").partition(".")[0] for name in names if how.get(name) not in ("cpp", None)}
        return list(names | short)

    def clear_op_tracking(self) -> None:
        """Forget both lists; the next fallback of each op warns again."""
        self._tracker.clear()

    @property
    def continued_past(self) -> list[str]:
        """Overloads the device would have raised on, computed another way; sorted, since the process began."""
        return sorted(self._tracker.continued_past)

    @property
    def strict_limits(self) -> bool:
        """Whether the limits of the profile all act; else only those that users or public documents report."""
        return self._limits.strict

    @strict_limits.setter
    def strict_limits(self, on: bool) -> None:
        self._limits.strict = on

    @property
    def met_limits(self) -> list[Limit]:
        """Limits of the profile that tensors made since the process began come under: possible problems.

        ``int64`` is not noted: every token id is one, and the limit is felt only by values beyond 32 bits.
        """
        return self._limits.met

    @property
    def met_rules(self) -> list[CollectiveRule]:
        """Rules of process groups that were broken since the process began, and did not raise here."""
        return [rules.named("cpu_tensor")] if self._tracker.cpu_collectives else []

    def acts(self, limit: Limit) -> bool:
        """Whether a limit of the profile changes what is computed, or is only noted."""
        return self._limits.acts(limit.what)

    def inject_failure(self, op: str | None) -> None:
        """Make the kernel of one more op fail, as if it could not be compiled or run; None makes all work again.

        It is then recorded and computed on the CPU, or raises where
        ``TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS`` is 1 (see `smoketest.devices.emulated.recovery`).

        Args:
            op: full overload name; of a structured op any form, ``aten::ceil_`` for ``aten::ceil.out``.

        Raises:
            ValueError: the device has no kernel for it, or one in C++, which the backend's recovery does not cover.
        """
        if op is None:
            self._tracker.failing.clear()
            self._tracker.faults.clear()
            return
        name = self.profile.reached(op)
        how = self.profile.registered_by.get(name)
        if how is None:
            raise ValueError(f"{op} has no kernel on the device that could fail: it runs on the CPU anyway")
        if how == "cpp":
            raise ValueError(f"{op} has a kernel in C++: the backend recovers from failures of Python kernels only")
        self._tracker.failing.add(name)

    def inject_fault(self, op: str, how: str) -> None:
        """Make the kernel of one more op compute wrongly; ``inject_failure(None)`` makes all right again.

        Nothing tells of it: the op counts as executed on the device.

        Args:
            op: full overload name; of a structured op any form.
            how: a key of `smoketest.devices.emulated.faults.FAULTS`.

        Raises:
            ValueError: the device has no kernel for it.
            KeyError: there is no such fault.
        """
        name = self.profile.reached(op)
        if name not in self.profile.registered_by:
            raise ValueError(f"{op} has no kernel on the device that could be wrong: it runs on the CPU anyway")
        self._tracker.faults[name] = FAULTS[how]
        self._tracker.failing.add(name)

    def refuse_written_indices(self) -> AbstractContextManager[object]:
        """Around user code of one of several ranks: the device of another rank, written as text, raises there.

        A function mode, which slows down every call of PyTorch's: not for timed steps. Nothing where the local rank is
        0, whose index tensors show.
        """
        return WrittenIndices() if local_rank() else nullcontext()

    def observe(self, callback: Callable[[str, bool], None] | None) -> None:
        """Have ``callback(overload name, fell_back)`` called before each kernel of the device runs; None ends it.

        All ops pass, views too, in whatever thread runs them: backward has one of its own.
        """
        self._tracker.observer = callback


def emulate(profile: str | Path | None = None, *, warn: bool = True) -> EmulatedDevice:
    """Give this process an emulated ``neuron`` device, or return the one it has.

    Args:
        profile: path of an operator profile; the packaged one when None.
        warn: warn once per op that falls back to the CPU. A later call may switch it.

    Raises:
        ProfileError: the profile cannot be read.
        DeviceUnavailable: the process has a device with another profile, or another backend's.
    """
    wanted = load_profile(None if profile is None else Path(profile))
    if not _installed:
        _installed.append(EmulatedDevice(wanted, warn=warn))
        shim.offer(_installed[0])
    device = _installed[0]
    if device.profile != wanted:
        raise DeviceUnavailable(
            f"this process already emulates a device with the profile {device.profile.name!r}, "
            f"and cannot change to {wanted.name!r}",
            hint="start another Python process for the other profile",
        )
    device.warn = warn
    return device


def the_device() -> EmulatedDevice:
    """The device of this process.

    Raises:
        DeviceUnavailable: `emulate` was not called.
    """
    if not _installed:
        raise DeviceUnavailable("this process has no emulated device", hint="call smoketest.emulate() first")
    return _installed[0]
