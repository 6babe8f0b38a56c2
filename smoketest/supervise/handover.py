"""Ranks that somebody else's launcher started (torchrun): each leaves its report in files, and rank 0 makes one of all.

Every rank runs and reports as if it were alone, in a folder of its own, ``<output>/ranks/<rank>/<name>/``. When its
report is there it says so in a file beside it, with a mark of this launch, so that reports of an earlier one are never
taken for this one's.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from smoketest.errors import InternalError
from smoketest.findings import NotChecked, Report
from smoketest.findings.report import CompilePart, EagerPart, ParityPart
from smoketest.supervise.files import write_atomically
from smoketest.supervise.outcome import OTHERS
from smoketest.supervise.ranks import merge

__all__ = ["PATIENCE", "Rank", "gather", "hand_over", "launched_as", "take_back"]

PATIENCE = 60.0
"""Seconds that rank 0 waits for the other reports, from when its own is done."""

_MARK = "handed_over"
_POLL = 0.1
_LOST = "gloo/transport"
"""In what gloo says where the connection to another rank is lost."""
_END = "eager part, to its end"


@dataclass(frozen=True)
class Rank:
    """One of several processes of a launch.

    Attributes:
        number: from 0.
        size: how many there are.
        launch: what tells this launch from others.
    """

    number: int
    size: int
    launch: str

    def output(self, shared: Path) -> Path:
        """The output folder of this rank, below the one that all were given."""
        return shared / "ranks" / str(self.number)


def launched_as(environ: Mapping[str, str], parent: int) -> Rank | None:
    """Which rank this process is, as torchrun's variables say; None where it is the only one.

    Args:
        environ: of the process.
        parent: number of its parent process: one and the same for the ranks that torchrun starts on a machine.
    """
    number, size = environ.get("RANK", ""), environ.get("WORLD_SIZE", "")
    if not (number.isdecimal() and size.isdecimal() and int(number) < int(size) and int(size) > 1):
        return None
    names = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
    marks = [environ.get(name, "") for name in names]
    if environ.get("TORCHELASTIC_RUN_ID") and environ.get("GROUP_WORLD_SIZE", "1") == "1":
        marks.append(str(parent))
    return Rank(int(number), int(size), " ".join(marks))


def take_back(rank: Rank, shared: Path, name: str) -> None:
    """Forget what this rank handed over in an earlier launch."""
    (rank.output(shared) / name / _MARK).unlink(missing_ok=True)


def hand_over(rank: Rank, shared: Path, name: str) -> None:
    """Say that this rank's report is there.

    Raises:
        InternalError: that cannot be written.
    """
    folder = rank.output(shared) / name
    try:
        write_atomically(folder / _MARK, rank.launch)
    except OSError as error:
        raise InternalError(f"the report cannot be handed over in {folder}: {error.strerror}") from None


def gather(rank: Rank, shared: Path, name: str, mine: Report, patience: float = PATIENCE) -> Report:
    """One report of those of all ranks; one that hands over none in time is named in it.

    Args:
        rank: this one, which is rank 0.
        shared: the output folder that all were given.
        name: of the report.
        mine: of this rank.
        patience: seconds to wait for the others.
    """
    others = [Rank(number, rank.size, rank.launch) for number in range(1, rank.size)]
    reports: dict[int, Report] = {0: mine}
    ends = time.monotonic() + patience
    while len(reports) < rank.size:
        for other in others:
            if other.number not in reports and (found := _report_of(other, shared, name)) is not None:
                reports[other.number] = found
        if len(reports) == rank.size or time.monotonic() > ends:
            break
        time.sleep(_POLL)
    return merge(_settled([reports.get(number) or _missing(mine, patience) for number in range(rank.size)]))


def _settled(reports: Sequence[Report]) -> Sequence[Report]:
    """The reports, those of ranks that only lost their connection to another one told as such.

    Which rank failed first, reports do not tell. The words of gloo do, which carries the emulated device's collectives;
    those of the real device for it are not known, and there all ranks that raised are named.
    """
    lost = [_LOST in (report.eager.reason or "") for report in reports]
    failed = [report.eager.status not in ("ran", "skipped") for report in reports]
    if not any(bad and not gone for bad, gone in zip(failed, lost, strict=True)):
        return reports
    return [_ended_with_others(report) if gone else report for report, gone in zip(reports, lost, strict=True)]


def _ended_with_others(report: Report) -> Report:
    """The report of a rank whose end another one is to blame for."""
    count = len(report.eager.steps)
    made = f"{count} step{'' if count == 1 else 's'}" if count else "no step"
    reason = f"it lost its connection after {made}, {OTHERS}"
    kept = tuple(finding for finding in report.findings if not (finding.rule == "NST104" and _LOST in finding.message))
    ended = tuple(
        NotChecked(what=entry.what, why=reason) if entry.what == _END else entry for entry in report.not_checked
    )
    denied = any(finding.verdict == "deny" for finding in kept)
    return report.model_copy(
        update={
            "status": "fail" if denied else "pass",
            "exit_code": 1 if denied else 0,
            "headline": reason,
            "eager": report.eager.model_copy(update={"status": "failed", "reason": reason}),
            "findings": kept,
            "not_checked": ended,
        }
    )


def _report_of(rank: Rank, shared: Path, name: str) -> Report | None:
    folder = rank.output(shared) / name
    try:
        if (folder / _MARK).read_text("utf-8") != rank.launch:
            return None
        return Report.model_validate_json((folder / "report.json").read_bytes())
    except (OSError, UnicodeDecodeError, ValidationError):
        return None


def _missing(mine: Report, patience: float) -> Report:
    """What stands for a rank that handed over nothing: like rank 0's, without anything it saw."""
    why = f"no report was handed over within {patience:g} s of rank 0's end"
    return mine.model_copy(
        update={
            "status": "error",
            "exit_code": 5,
            "headline": why,
            "eager": EagerPart(status="crashed", reason=why),
            "compile": CompilePart(status="skipped", reason=why),
            "parity": ParityPart(status="skipped", reason=why),
            "operators": (),
            "findings": (),
            "not_checked": (),
        }
    )
