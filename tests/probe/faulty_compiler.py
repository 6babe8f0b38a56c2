"""A double of the lowering process: dies of aten::sin, hangs on aten::cos, lowers all else."""

from __future__ import annotations

import os
import signal
import sys
import time

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
        write_message(out, Answer("stablehlo"))


if __name__ == "__main__":
    main()
