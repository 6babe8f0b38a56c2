"""The variables that a run on the real device sets before torch is imported: torch-neuronx loads with it, and reads."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass

__all__ = ["SETTINGS", "Setting", "apply_settings"]


@dataclass(frozen=True)
class Setting:
    """A variable and the value a run needs.

    Attributes:
        name: of the variable.
        value: what a run sets it to.
        overrides: whether it does so against the user's value, too.
    """

    name: str
    value: str
    overrides: bool = False


SETTINGS = (
    # Errors come from the op they belong to. The default depends on the build: [PRE] _build_config.py
    Setting("NEURON_LAUNCH_BLOCKING", "1"),
    # An op whose kernel fails runs on the CPU, and is a finding; the default depends on the build, too.
    # [PUB] env-vars page, [PRE] _build_config.py
    Setting("TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS", "0"),
    # A graph that fails to compile raises. It may run eagerly without a word otherwise, and look as if it had compiled:
    # a compile probe on the device is worth nothing then. [PUB] env-vars page
    Setting("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", "1", overrides=True),
)


def apply_settings(environ: MutableMapping[str, str]) -> dict[str, str]:
    """Set the variables where the user did not, and return those that were set; torch must not be imported yet."""
    changed = {}
    for setting in SETTINGS:
        given = environ.get(setting.name)
        if given is None or (setting.overrides and given != setting.value):
            environ[setting.name] = changed[setting.name] = setting.value
    return changed
