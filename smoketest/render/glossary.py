"""The words of a report that somebody who knows only PyTorch has not met, each with what it means."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["LONGEST", "TERMS", "Term", "terms_in"]


@dataclass(frozen=True)
class Term:
    """A word of reports.

    Attributes:
        name: as it is explained.
        pattern: what it looks like in a text.
        meaning: a sentence without its full stop.
        short: name and meaning in a few words, for a terminal; empty where a terminal's report does without.
    """

    name: str
    pattern: str
    meaning: str
    short: str = ""


TERMS = (
    Term("deny, warn, allow", r"\bden(y|ies|ied)\b|\bwarn(ings?)?\b|\ballow(ed)?\b",
         "a denied finding fails the check (exit code 1), a warning and an allowed one do not; `gate:` in the check"
         " says which is which. An entry under `allow:` accepts a finding; where the check has such a list already, the"
         " line with the dash goes into that",
         "denied: fails the check (a warning does not)"),
    Term("predicted, possible", r"\b(predicted|possible)\b",
         "no device was asked: predicted stands on what was seen on a device or cannot be otherwise, possible means"
         " only that no kernel is known of"),
    Term("op", r"\baten::|\bops?\b",
         "one of PyTorch's own operations. `aten::sort.values_stable` is the variant of `aten::sort` that ran; its last"
         " part (`.out`, a trailing `_`) only tells how the result is stored. What your line calls is given as `called"
         " as`"),
    Term("kernel", r"\bkernels?\b",
         "the device's code for an op. Without one the op cannot run on the device"),
    Term("fallback", r"\bfall(s|ing)? ?backs?\b|\bfell back\b",
         "an op that the device hands to the CPU: its tensors are copied there and the result back, in every call",
         "fallback: the op runs on the CPU, its tensors copied there and back"),
    Term("op failure", r"\bfailed ops?\b|\bop failures?\b",
         "an op at which the step stops with an exception on the device, most often because neither the device nor the"
         " CPU it falls back to has a kernel for it. The emulated device goes on if it can, to show what comes after",
         "op failure: on the device the step stops there, with an exception"),
    Term("hidden host work", r"\bhidden host work\b",
         "work on the CPU inside an op that counts as running on the device, such as casting 64-bit numbers: no list of"
         " fallbacks has it",
         "hidden host work: the CPU works inside an op that counts as the device's"),
    Term("host", r"\bhosts?\b", "the machine around the device, that is its CPU and memory"),
    Term("host synchronisation", r"host sync",
         "Python needs a value that is on the device (`.item()`, `if tensor:`), and waits until everything before it"
         " has been computed",
         "host synchronisation: Python waits for a value of the device"),
    Term("operator profile", r"\b(operator )?profiles?\b",
         "the list of ops that a release of torch-neuronx has kernels for; `smoketest operators list` shows it"),
    Term("traced step", r"\btraced\b",
         "one more training step in which every op call is recorded; it is in no timing"),
    Term("eager", r"\b[Ee]ager(ly)?\b", "running op by op, as PyTorch does without torch.compile"),
    Term("backward of a line", r"\bbackward\b",
         "what autograd runs for that line: its gradient, what a checkpoint computes again there, or code of a backward"
         " of your own"),
    Term("compile probe", r"\b[Cc]ompile.probe\b",
         "the model is captured by torch.compile and what was captured is lowered, op by op and as a whole; nothing of"
         " it needs a device"),
    Term("graph", r"\bgraphs?\b", "the ops of a piece of the model as torch.compile recorded them"),
    Term("lower", r"\blower(s|ed|ing)?\b",
         "translate a graph for the compiler, in four stages: captured (by torch.compile), imported (into torch-mlir),"
         " torch-backend (simplified), stablehlo (what the Neuron compiler reads). What does not lower cannot be"
         " compiled; it is a matter of torch.compile, not of running eagerly",
         "lowering: translating what torch.compile captured for the Neuron compiler"),
    Term("torch-mlir", r"\btorch-mlir\b",
         "the public library that lowers here; on a device the backend brings a version of its own"),
    Term("decomposition", r"\bdecompos(ition|es|ed)\w*\b|split into other ops",
         "PyTorch's own way to write an op with simpler ones, which then lower in its place"),
    Term("functional overload", r"\bfunctional overload\b",
         "the form of an op that returns a new tensor: in-place and out= forms count as the same op"),
    Term("graph break", r"\bgraph breaks?\b",
         "torch.compile cannot record a line: the graph ends there, the line runs as plain Python, and another graph"
         " begins",
         "graph break: a line that torch.compile cannot record"),
    Term("Dynamo", r"\bDynamo\b", "the part of torch.compile that records what your Python code computes"),
    Term("skipped frame", r"\bskipped (it|frames?|\d+ frames?|\w+\(\))",
         "a function that Dynamo gave up as a whole: it runs as plain Python and nothing of it was probed"),
    Term("recompile, guard", r"\brecompiles?\b|\bguards?\b|\bcompiled again\b",
         "torch.compile's code holds for inputs that pass its guards (sizes, types, values); another input is compiled"
         " for anew, which takes minutes on a device",
         "recompile: another input, another compilation"),
    Term("NEFF, neuronx-cc", r"\bNEFF\b|\bneuronx-cc\b|\bNCC_", "the Neuron compiler (neuronx-cc) and what it makes"),
    Term("parity", r"\bparity\b", "the same numbers as on plain CPU, within what rounding explains"),
)  # fmt: skip
"""In the order in which they are told."""

LONGEST = sum(len(term.name) + len(term.meaning) + 12 for term in TERMS)
"""Characters of all of them as a list."""


def terms_in(text: str) -> list[Term]:
    """The terms that occur in a text, in the order of `TERMS`."""
    return [term for term in TERMS if re.search(term.pattern, text, re.IGNORECASE)]
