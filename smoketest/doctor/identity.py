"""Which product goes by the name torch-neuronx here, told by several signs together.

Three products share the distribution's name: the native backend, the older XLA-based one and a placeholder on PyPI;
others register the device's name only. A version alone is not enough: one report has a native backend under an old
number ([USER] facts of a Qwen run, torch-neuronx 2.9.0.2.12).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from smoketest.doctor import facts
from smoketest.doctor.observed import Distribution, Packages

__all__ = ["Family", "Identity", "identify", "numbers"]

Family = Literal[
    "native",
    "unconfirmed",  # a native number, and no other sign of it
    "beta",
    "newer",
    "unreleased",  # native by its parts, no number of a release
    "legacy",
    "placeholder",
    "lookalike",
    "contradictory",
    "broken",  # registered, and its module is not there
    "absent",
]


@dataclass(frozen=True)
class Identity:
    """What torch-neuronx is, and the signs it is told by."""

    family: Family
    version: str | None = None
    signs: tuple[str, ...] = ()

    @property
    def native(self) -> bool:
        """Whether it is the native backend in any release, so that asking it for a device makes sense."""
        return self.family in ("native", "unconfirmed", "beta", "newer", "unreleased", "contradictory")


def numbers(version: str) -> tuple[int, ...]:
    """The release numbers of a version, local part left out: ``2.13.0+cpu`` is (2, 13, 0)."""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[+a-z]", version, maxsplit=1)[0]))


def identify(packages: Packages) -> Identity:
    """Tell the product by version, entry points, parts and company."""
    distributions = packages.all("torch-neuronx")
    module = packages.modules.get("torch_neuronx")
    if not distributions:
        return _without_distribution(packages, module)
    distribution = distributions[0]
    version = distribution.version
    native, legacy = _native_parts(packages, distribution), _legacy_parts(packages)
    signs = (f"version {version}", *native, *legacy)
    if facts.PLACEHOLDER_VERSION.match(version) and not native and not legacy:
        return Identity("placeholder", version, signs)
    if module is None:
        return Identity("broken", version, signs)
    native_number, legacy_number = facts.NATIVE_VERSION.match(version), facts.LEGACY_VERSION.match(version)
    if (native or native_number) and (legacy or legacy_number):
        return Identity("contradictory", version, signs)
    if legacy or legacy_number:
        return Identity("legacy", version, (*signs, *_company(packages)))
    if native_number:
        return Identity(_native_release(version, confirmed=bool(native)), version, signs)
    return Identity("unreleased" if native else "contradictory", version, signs)


def _without_distribution(packages: Packages, module: tuple[str, ...] | None) -> Identity:
    """A module of nobody's, a package that takes the device's name, or nothing."""
    if module is not None:
        return Identity("lookalike", None, (f"a module torch_neuronx in {module[0]} that belongs to no distribution",))
    for name in facts.LOOKALIKES:
        version = packages.version(name)
        if version is not None:
            return Identity("lookalike", None, (f"{name} {version}, which registers the name of the device only",))
    return Identity("absent")


def _native_release(version: str, *, confirmed: bool) -> Family:
    number = numbers(version)
    if number < facts.FIRST:
        return "beta"
    if number >= facts.LIMIT:
        return "newer"
    return "native" if confirmed else "unconfirmed"


def _native_parts(packages: Packages, distribution: Distribution) -> tuple[str, ...]:
    """Signs of the native product, but for its number."""
    groups = {group for group, _ in distribution.entry_points}
    entry_points = [group for group in (facts.AUTOLOAD_GROUP, facts.DYNAMO_GROUP) if group in groups]
    modules = [name for name in facts.NATIVE_MODULES if name in packages.submodules]
    return (*(f"entry point {group}" for group in entry_points), *(f"part {name}" for name in modules))


def _legacy_parts(packages: Packages) -> tuple[str, ...]:
    """Signs of the XLA-based product, but for its number."""
    return tuple(f"part {name}" for name in facts.LEGACY_MODULES if name in packages.submodules)


def _company(packages: Packages) -> tuple[str, ...]:
    return tuple(f"{name} beside it" for name in facts.XLA if packages.all(name))
