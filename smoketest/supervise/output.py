"""The output witness: what the backend prints of fallbacks itself, heard in the pipe that a worker prints to.

It sees what goes through file descriptors 1 and 2, from C++ too, whatever the process does with ``sys.stdout``, the
`warnings` module and `logging`. It does not see where in the step an op ran, nor how often, nor what went to a file
(``TORCH_NEURONX_LOG_FILE``) or to a descriptor that the user's code put in place of 1 and 2. It only listens: what is
printed goes to the log as it came.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from smoketest.findings import Finding, Observation, merge
from smoketest.findings.identity import functional_base
from smoketest.findings.report import Phase
from smoketest.findings.wordings import op_named_as_fallback

__all__ = ["HeardOps", "with_heard"]

MAX_LINE = 8 * 2**10
MAX_OPS = 200
_MAX_NAME = 200
_COLOUR = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_ERROR = re.compile(r"\b(ERROR|CRITICAL)\b")  # the same text is logged so where the op raised ([PRE] internals 2.7)


@dataclass
class HeardOps:
    """The ops that lines of output name as fallen back: at most `MAX_OPS`, each once.

    It keeps at most the first `MAX_LINE` bytes of a line whose end has not come, and reads no more than that of any.

    Attributes:
        ops: names as printed, in the order in which they came, and the phase: setup, where each line that names the op
            came in it, else None.
        overflowed: whether more were named.
    """

    ops: dict[str, Phase | None] = field(default_factory=dict)
    overflowed: bool = False
    _partial: bytes = b""

    def hear(self, data: bytes, phase: Phase | None = None) -> None:
        """Take what was printed, in pieces of any size; `phase` is setup where no step can have begun before it."""
        data = self._partial + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if b"cpu" in data.lower():  # cheaper than to look at each line, for a worker that prints without end
            for line in data[:end].splitlines():
                self._line(line, phase)
        self._partial = data[end : end + MAX_LINE]

    def end(self) -> None:
        """Nothing more comes: the last line may have no end."""
        self._line(self._partial, None)
        self._partial = b""

    def _line(self, line: bytes, phase: Phase | None) -> None:
        text = _COLOUR.sub("", line[:MAX_LINE].decode("utf-8", "replace"))
        op = op_named_as_fallback(text)
        if op is None or len(op) > _MAX_NAME or _ERROR.search(text):
            return
        if op in self.ops or len(self.ops) < MAX_OPS:
            self.ops[op] = phase if self.ops.get(op, phase) == phase else None
        else:
            self.overflowed = True


def with_heard(findings: Iterable[Finding], ops: Mapping[str, Phase | None]) -> tuple[Finding, ...]:
    """The findings of a real device's eager part, with what the output witness heard.

    A fallback that is known already gains the witness ``output``. One that is not becomes a finding with neither site
    nor count, and no phase but setup, except where the op is known to have raised: that a fallback was begun is no
    news then.

    Args:
        findings: of the other witnesses.
        ops: names as printed (``aten::sort.values_stable``, ``aten::sort`` or ``sort``), with the phase where known.
    """
    findings = tuple(findings)
    heard: dict[str, str] = {}  # the longest of the names an op has in the output, by its functional base
    phases: dict[str, set[Phase | None]] = {}
    for op, phase in ops.items():
        name = op if "::" in op else f"aten::{op}"
        base = functional_base(name)
        phases.setdefault(base, set()).add(phase)
        heard[base] = max(heard.get(base, ""), name, key=lambda each: (len(each), each))
    joined = tuple(_seconded(finding) if _bases(finding) & heard.keys() else finding for finding in findings)
    known = {base for finding in findings if finding.rule in ("NST101", "NST104") for base in _bases(finding)}
    return joined + merge(
        _only_heard(name, "setup" if phases[base] == {"setup"} else None)
        for base, name in heard.items()
        if base not in known
    )


def _bases(finding: Finding) -> set[str]:
    return {functional_base(name) for name in (finding.op, finding.called_as) if name}


def _seconded(finding: Finding) -> Finding:
    if finding.rule != "NST101":
        return finding
    return finding.model_copy(update={"witnesses": tuple(sorted({*finding.witnesses, "output"}))})


def _only_heard(op: str, phase: Phase | None) -> Observation:
    where = "at setup only: " if phase == "setup" else ""
    return Observation(
        rule="NST101",
        op=op,
        kind="unknown",
        grounds="measured",
        phase=phase,
        exact=False,
        witnesses=frozenset({"output"}),
        message=f"{where}{op} ran on the CPU, by what the backend printed; no other witness saw it",
    )
