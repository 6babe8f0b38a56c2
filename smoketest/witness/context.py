"""Where the run is, for every witness to read: one small object the runner updates."""

from __future__ import annotations

from dataclasses import dataclass

from smoketest.findings.report import Phase

__all__ = ["Context"]


@dataclass
class Context:
    """The phase a step is in; shared by the threads of autograd, since the engine waits for its own.

    Attributes:
        phase: as in findings; None inside a custom train_step, which is not split into phases.
    """

    phase: Phase | None = "setup"
