"""What a part of a check is run with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from smoketest.config.models import Check
from smoketest.devices.base import Device
from smoketest.findings import SitePolicy
from smoketest.findings.report import Environment, NotChecked
from smoketest.supervise.protocol import Message, Note
from smoketest.worker.breadcrumb import BreadcrumbFile

if TYPE_CHECKING:
    from smoketest.workload.ranks import Ranks

__all__ = ["Job"]


@dataclass(frozen=True)
class Job:
    """One part of a check, ready to run.

    Attributes:
        check: what to run.
        device: opened.
        policy: makes sites of lines.
        environment: versions and settings.
        emit: sends a message to the supervisor.
        breadcrumb: where to write what is going on.
        output: the report's folder, for files that go beside it; None where nothing is kept.
        state_file: for the state before the traced step, which the reference part begins with.
        ranks: this process among several that make the steps together; None where it is the only one.
        losses: of the reference part: those of the steps where several ranks made them, the mean over ranks.
        record_file: for what the device gave in that step. Both are None where no reference part follows.
    """

    check: Check
    device: Device
    policy: SitePolicy
    environment: Environment
    emit: Callable[[Message], None]
    breadcrumb: BreadcrumbFile
    output: Path | None = None
    state_file: Path | None = None
    record_file: Path | None = None
    ranks: Ranks | None = None
    losses: tuple[float | None, ...] | None = None

    def note(self, what: str, why: str) -> None:
        """Tell that something was not checked."""
        self.emit(Note(not_checked=NotChecked(what=what, why=why)))
