"""What the doctor says, as frozen data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

__all__ = ["Diagnosis", "Line", "Topic", "Verdict"]

Verdict = Literal["ok", "warn", "fail", "unknown"]


class Topic:
    """Names of the lines, in the order in which they are shown."""

    PYTHON = "Python"
    TORCH = "torch"
    NEURONX = "torch-neuronx"
    PAIR = "torch pair"
    BESIDE = "conflicts"
    COMPILER = "neuronx-cc"
    NKI = "nki"
    DRIVER = "driver"
    DEVICES = "neuron-ls"
    COLLECT_ENV = "collect_env"
    INSTANCE = "instance type"
    SYSTEM = "operating system"
    SETTINGS = "settings"
    CACHES = "caches"
    USABLE = "torch.neuron"
    EMULATED = "emulated device"
    LOWERING = "compile probe"


# A later cause often follows from an earlier one: what has to be put right first comes first.
_CAUSES = (
    Topic.SYSTEM,
    Topic.INSTANCE,
    Topic.NEURONX,
    Topic.BESIDE,
    Topic.TORCH,
    Topic.PAIR,
    Topic.PYTHON,
    Topic.DRIVER,
    Topic.DEVICES,
    Topic.USABLE,
    Topic.COMPILER,
    Topic.CACHES,
)


@dataclass(frozen=True)
class Line:
    """One thing looked at.

    Attributes:
        topic: what was looked at, one of `Topic`.
        found: what is there.
        expected: what a machine that runs on device ``neuron`` has there.
        verdict: ``unknown`` where it could not be looked at, or nothing published says what is right.
        advice: what to do; empty where there is nothing to do.
    """

    topic: str
    found: str
    expected: str
    verdict: Verdict
    advice: str = ""

    def map_texts(self, change: Callable[[str], str]) -> Line:
        """The same line with every text changed."""
        return replace(self, found=change(self.found), expected=change(self.expected), advice=change(self.advice))


@dataclass(frozen=True)
class Diagnosis:
    """Whether this machine can run on device ``neuron``, and whether it can run on the emulated one.

    Attributes:
        lines: about the real device, in the order of `Topic`.
        emulated: about the emulated device; no part of `ok`.
    """

    lines: tuple[Line, ...]
    emulated: tuple[Line, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing fails and ``torch.neuron`` was seen to have a device: what was not seen is not usable."""
        return self.cause is None

    @property
    def exit_code(self) -> int:
        """0, or 3 where the machine is not fit for device ``neuron`` (design, section 7)."""
        return 0 if self.ok else 3

    @property
    def cause(self) -> Line | None:
        """The failing line to put right first; None where the device is usable."""
        failing = {line.topic: line for line in reversed(self.lines) if line.verdict == "fail"}
        for topic in _CAUSES:
            if topic in failing:
                return failing[topic]
        if failing:
            return next(iter(failing.values()))
        return next((line for line in self.lines if line.topic == Topic.USABLE and line.verdict != "ok"), None)

    def of(self, topic: str) -> Line:
        """The first line of a topic. Raises `KeyError`."""
        for line in (*self.lines, *self.emulated):
            if line.topic == topic:
                return line
        raise KeyError(topic)

    def advice(self) -> str:
        """One paragraph: what is in the way of device ``neuron``, what to do first, and what works without it."""
        cause = self.cause
        if cause is None:
            return "torch has a Neuron device, and nothing found here speaks against it. No op was run to find out."
        return f"{_sentence(_headed(cause))} {cause.advice}".strip() + f" {self._emulated_advice()}"

    def map_texts(self, change: Callable[[str], str]) -> Diagnosis:
        """The same diagnosis with every text changed, such as names of people taken out."""

        def changed(lines: Iterable[Line]) -> tuple[Line, ...]:
            return tuple(line.map_texts(change) for line in lines)

        return Diagnosis(changed(self.lines), changed(self.emulated))

    def _emulated_advice(self) -> str:
        failing = next((line for line in self.emulated if line.verdict != "ok" and line.topic == Topic.EMULATED), None)
        if failing is None:
            return "The emulated device needs none of this and is usable here: --device emulated."
        state = "whether it is usable here is" if failing.verdict == "unknown" else "is not usable here either:"
        return (
            f"The emulated device needs none of this, but {state} {_sentence(failing.found)} {failing.advice}".strip()
        )


def _headed(line: Line) -> str:
    """What was found, led by its topic unless that says it already."""
    return line.found if line.topic.lower() in line.found.lower() else f"{line.topic}: {line.found}"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
