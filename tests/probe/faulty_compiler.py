"""A double of the lowering process: dies of aten::sin, hangs on aten::cos, refuses some ops in company only.

It does not know aten::lgamma, as torch-mlir does not.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from smoketest.probe.graphs import NodeSpec
from smoketest.probe.lowering_worker import Answer, Hello, Imported, read_message, write_message

IN_COMPANY = {
    "aten::tanh": "not in this company",
    "aten::mm": "matmul: input datatypes mismatched",
    "aten::expand": "'stablehlo.broadcast_in_dim' op result #0 must be statically shaped, but got 'tensor<?x4xf32>'",
    "aten::flip": "failed to legalize operation 'torch.constant.int'",
}
"""What the real compiler says of what shows in whole graphs only, by the op that the double says it of."""


def answer(calls: list[NodeSpec]) -> Answer:
    if any(node.target == "aten::lgamma" for node in calls):
        unknown = ("torch.aten.lgamma",)
        return Answer("imported", "failed to legalize operation 'torch.operator'", calls[0].name, unknown)
    for node in calls:
        sentence = IN_COMPANY.get(str(node.target))
        if sentence is not None and len(calls) > 1:
            return Answer("torch-backend", sentence, f"{node.name}__part")
    return Answer("stablehlo")


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
            time.sleep(600)
        write_message(out, answer([node for node in graph.nodes if node.is_op]))


if __name__ == "__main__":
    main()
