"""``python -m smoketest.worker.trial REQUEST.json``: find a check for a target, and write it down as it grows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from smoketest.config.draft import Draft, TrialRequest
from smoketest.errors import SmoketestError
from smoketest.process import end_with_parent

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Answer the request in the file named by the only argument; the exit code is 0 where there is an answer."""
    end_with_parent()
    request = TrialRequest.model_validate_json(Path(arguments[0]).read_bytes())
    # torch-neuronx, where it is installed, loads itself when torch is imported: a trial is on plain CPU.
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    drafts = [Draft(target=request.target, workload=request.workload and str(request.workload))]

    def write(draft: Draft) -> None:
        drafts.append(draft)
        fresh = request.answer.with_suffix(".new")
        fresh.write_text(draft.model_dump_json(), encoding="utf-8")
        fresh.replace(request.answer)

    from smoketest.worker.trial.search import find_check

    try:
        write(find_check(request, write))
    except SmoketestError as error:
        sys.stderr.write(f"{getattr(error, 'traceback', '')}")
        write(drafts[-1].model_copy(update={"problem": _sentence(error)}))
    return 0


def _sentence(error: SmoketestError) -> str:
    head = f"{error.place}: {error.message}" if error.place else error.message
    return f"{head}; {error.hint}" if error.hint else head


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
