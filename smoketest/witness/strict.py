"""The strict witness: why an op with a kernel ran on the CPU all the same.

With ``TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS=1`` the device raises where it would have recovered on the CPU;
ops without a kernel fall back as ever ([PUB] env-vars page, [PRE] internals 2.2 and 2.5). So a step under the variable
tells ``recovered`` and ``rejected`` from ``unimplemented``. Part of the backend reads the variable once, so it takes a
fresh process (`smoketest.worker.strict`), with another model, which the step may change as it likes. The supervisor
starts it when the eager worker is gone, which held the core, and joins what it tells (`smoketest.supervise.strict`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from smoketest.findings.identity import functional_base
from smoketest.findings.report import Kind
from smoketest.witness.modes import WatchingMode

__all__ = ["VARIABLE", "StrictWitness", "refusal"]

VARIABLE = "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS"

_REFUSED = re.compile(r"CPU fallback (?:is )?disabled\b.*?\boperation\s*=?\s*'?([\w:.]+)", re.IGNORECASE | re.DOTALL)
_NO_IMPLEMENTATION = "failed to be handled by any Neuron implementation"


def refusal(text: str) -> tuple[str, Kind] | None:
    """The op that was not allowed to fall back, as a functional base name, and why it would have; None for other texts.

    The wordings are a pre-release's ([PRE] base.py and ErrorRecovery.cpp, April 2026), matched loosely.
    """
    found = _REFUSED.search(text)
    if found is None:
        return None
    return functional_base(found.group(1).rstrip(".")), "rejected" if _NO_IMPLEMENTATION in text else "recovered"


class StrictWitness(WatchingMode):  # type: ignore[no-untyped-call]
    """Records each op that the device refuses to recover, and lets it pass the second time, so that the step goes on.

    What it cannot see: the second failing op of a composite, which is let pass whole; and refusals of work that the
    device does later, which come out of a synchronisation and end the step (`note_error` takes them).

    Attributes:
        kinds: by functional base name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kinds: dict[str, Kind] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run `func`, once more without the variable where it is refused."""
        kwargs = kwargs or {}
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:
            if not self.note_error(error):
                raise
        with _allowed():
            return func(*args, **kwargs)

    def note_error(self, error: BaseException) -> bool:
        """Record an exception; whether it was a refusal."""
        seen = refusal(str(error))
        if seen is None:
            return False
        op, kind = seen
        self.kinds.setdefault(op, kind)
        return True


@contextmanager
def _allowed() -> Iterator[None]:
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
