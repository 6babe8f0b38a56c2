"""A double of the lowering process: dies of aten::sin, hangs on aten::cos, refuses aten::tanh in company."""

from __future__ import annotations

import os
import signal
import sys
import time

import smoketest.probe.graphs  # noqa: F401  (imports torch before the clock of the first graph runs)
from smoketest.probe.lowering_worker import Answer, Hello, Imported, read_message, write_message


def main() -> None:
    out = sys.stdout.buffer
    write_message(out, Hello("double", frozenset()))
    while True:
        try:
            graph = read_message(sys.stdin.buffer.read)
        except EOFError:
            return
        targets = {node.target for node in graph.nodes}
        write_message(out, Imported(()))
        if "aten::sin" in targets:
            os.kill(os.getpid(), signal.SIGSEGV)
        if "aten::cos" in targets:
            time.sleep(60)
        calls = [node for node in graph.nodes if node.is_op]
        tanh = next((node.name for node in calls if node.target == "aten::tanh"), None)
        if tanh is not None and len(calls) > 1:
            write_message(out, Answer("torch-backend", "not in this company", f"{tanh}__part"))
        else:
            write_message(out, Answer("stablehlo"))


if __name__ == "__main__":
    main()
